"""Flows: their designs in versions, which of them run, and the logs of their runs."""
