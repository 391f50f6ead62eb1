"""Entities, which belong to `device`: read, written and called over the bus."""
