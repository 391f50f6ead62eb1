"""Write-only values (access mode W) stay out of backups (decision 0044).

They are in documents of commands that are still open. A restored command without them ends as
FAILED (`values_not_restored`), so that no device is sent a mask in place of a key.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import bson

COMMANDS, OUTBOX = "thingway_device.commands", "thingway_device.outbox"
CARRIED = "thingway_management.openapi_commands"
CONCEALED = frozenset({COMMANDS, OUTBOX, CARRIED})


def conceal(name: str, documents: Iterable[bytes]) -> Iterator[bytes]:
    """Give the documents of a collection (`{database}.{collection}`) without write-only values."""
    for raw in documents:
        concealed = _concealed(name, raw)
        if concealed is not None:
            yield concealed


def _concealed(name: str, raw: bytes) -> bytes | None:
    if name == COMMANDS and b"sealed" in raw:
        return _command(raw)
    if name == OUTBOX and b"command-" in raw:
        return _outbox(raw)
    if name == CARRIED and not bson.decode(raw).get("told"):
        return None  # `device` sends unanswered commands again
    return raw


def _command(raw: bytes) -> bytes:
    command: dict[str, Any] = bson.decode(raw)
    command.pop("sealed", None)
    for downlink in command.get("downlinks") or []:
        downlink["data"] = b""
    return bson.encode(command)


def _outbox(raw: bytes) -> bytes:
    document: dict[str, Any] = bson.decode(raw)
    for entry in document.get("entries", []):
        if entry.get("key"):
            entry |= {"payload": b"", "withdrawn": True}
    return bson.encode(document)
