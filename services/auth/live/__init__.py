"""Passwords with which pages of consoles hear live updates; they end with the log-in."""
