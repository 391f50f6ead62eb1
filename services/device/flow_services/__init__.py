"""Flows that are services, as entities: `workflow` makes them, people and flows call them."""
