"""Confined processes that run code of users; pipes connect them to their service."""
