"""The engine, which runs plans of flows."""
