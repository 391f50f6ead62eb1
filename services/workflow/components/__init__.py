"""The catalogue of node types, as editors read it."""
