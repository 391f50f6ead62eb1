"""Checks of callers: addresses, credentials, principals and their limits."""
