"""Retention: how long what things leave is kept, and what removes it."""
