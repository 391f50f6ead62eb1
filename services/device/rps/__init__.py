"""RPS: profile URLs for devices that are yet to be added."""

from services.device.rps.migrations import MIGRATIONS

__all__ = ["MIGRATIONS"]
