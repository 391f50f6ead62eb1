"""Credentials of a tenant that flows use: its mail server, and what outsiders sign in to flows with."""
