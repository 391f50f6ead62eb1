"""Integrations, dashboards and live updates."""
