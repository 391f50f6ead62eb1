"""Grants: which resources a role shows its users, and what users may do at all."""
