"""The catalogue of node types for editors."""
