"""Roles: which functions users may call, and which resources they see."""
