"""Integrations: known by what they announce, shown to people, asked by other services."""
