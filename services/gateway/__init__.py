"""The one public door: tokens, limits, routing, documentation."""
