"""Integrations, dashboards, live notifications: reserved, nothing of it is built yet."""
