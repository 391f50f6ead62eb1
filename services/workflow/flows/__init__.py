"""Flows: their designs in versions, and which of them run."""
