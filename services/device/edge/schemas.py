"""What `/ingest` answers."""

from typing import Any

import msgspec


class RefusedEntry(msgspec.Struct, omit_defaults=True):
    """An entry of the request, or a value in one, that was refused."""

    index: int
    field: str
    reason: str


class Accepted(msgspec.Struct):
    """How many entries were taken, and what was refused."""

    accepted: int
    refused: list[RefusedEntry]


class Commands(msgspec.Struct):
    """The commands that wait for the device, oldest first."""

    commands: list[dict[str, Any]]
