"""Entities for other services: read, written and called over the bus, as the platform."""
