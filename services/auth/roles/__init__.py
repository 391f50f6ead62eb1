"""Roles: which users may call which functions, and what they see."""
