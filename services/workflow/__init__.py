"""Flows and their engine: reserved, nothing of it is built yet."""
