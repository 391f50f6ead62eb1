"""Things: what a report or a command needs to know of a device, kept in memory."""

from services.device.things.directory import Thing, ThingDirectory

__all__ = ["Thing", "ThingDirectory"]
