"""Entrypoint, health check and compose jobs of the container image."""
