"""Processes that run people's code: confined, and spoken to over pipes."""
