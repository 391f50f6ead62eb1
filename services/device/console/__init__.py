"""Devices as a console sees them: those of every application and integration of a tenant."""
