"""Entities for consoles and other services: search, values, history, services, custom ones."""
