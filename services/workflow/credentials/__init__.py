"""Credentials of tenants: their mail servers, and what outsiders sign in to flows with."""
