"""Limits at the door: rates, which all replicas share, and what a process has in hand."""
