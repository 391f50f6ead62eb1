"""Tenants: to one of them belongs every user, role, application and thing."""
