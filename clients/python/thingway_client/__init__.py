"""A client of Thingway's device open API, for applications: `AsyncThingway` and `Thingway`."""

from thingway_client._async import AsyncCommand, AsyncHistory, AsyncThingway
from thingway_client._sync import Command, History, Thingway
from thingway_client.errors import CommandFailed, CommandPending, Refused, ThingwayError
from thingway_client.events import Event
from thingway_client.records import Record

__all__ = [
    "AsyncCommand",
    "AsyncHistory",
    "AsyncThingway",
    "Command",
    "CommandFailed",
    "CommandPending",
    "Event",
    "History",
    "Record",
    "Refused",
    "Thingway",
    "ThingwayError",
]
