"""Products: models of devices, with their TSL documents by version."""

from services.device.products.migrations import MIGRATIONS

__all__ = ["MIGRATIONS"]
