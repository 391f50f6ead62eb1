"""Structs of messages on the bus: events, which are a public contract, and calls."""
