"""Flows: versions of their designs, deployment, and logs of their runs."""
