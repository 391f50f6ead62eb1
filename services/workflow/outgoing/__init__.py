"""Outgoing requests of flows, to public addresses and networks of the allow-list."""
