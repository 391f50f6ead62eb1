"""Devices: add, search, get, update, delete, remove from the application, credentials."""
