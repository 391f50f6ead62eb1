"""Logins of external integrations: a process of somebody else that is one integration."""
