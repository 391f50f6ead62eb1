"""Members: what a TSL, or what a device has sent, has for entities; and the entities they are.

Products number their members here, ingest notes shapes, consoles and flows find entities by id and
by key. There is no row for an entity anywhere.
"""
