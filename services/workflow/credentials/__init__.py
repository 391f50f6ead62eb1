"""Credentials of tenants: mail servers, and logins of external clients to flows."""
