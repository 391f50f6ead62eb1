"""Runs of flows and their log."""
