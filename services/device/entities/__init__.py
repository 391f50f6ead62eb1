"""Entities: search, values, history, service calls, custom entities and tags."""
