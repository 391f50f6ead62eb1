"""Connections to the bus: how many a principal may have, and the end of those of an old key."""
