"""Tenants, which own all users, roles, applications and devices."""
