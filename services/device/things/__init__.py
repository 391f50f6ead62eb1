"""Things: what a report or a command needs to know of a device, kept in memory."""

from services.device.things.directory import ThingDirectory
from services.device.things.model import Thing

__all__ = ["Thing", "ThingDirectory"]
