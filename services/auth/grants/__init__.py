"""Grants: the resources that roles may see, and the permissions of users."""
