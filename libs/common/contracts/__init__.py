"""Typed structs of what crosses the bus: events (a public contract) and rpc."""
