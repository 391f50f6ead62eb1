"""Flows: their designs, what makes them run, the engine that runs them, and their logs."""
