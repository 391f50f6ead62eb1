"""Devices: add, search, get, update, delete, remove from the application, credentials."""

from services.device.devices.migrations import MIGRATIONS

__all__ = ["MIGRATIONS"]
