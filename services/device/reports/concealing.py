"""Write-only values in what devices send: nobody reads them in what is kept of a message."""

from collections.abc import Iterable
from typing import Any

import msgspec

from libs.common.tsl import MASK, Fault, Tsl
from services.device.reports.uplink import Uplink
from services.device.things.model import Thing

REPLY_SHOWN = ("commandId", "status")


def holds_write_only(faults: Iterable[Fault]) -> bool:
    """Return whether what was refused of a message is, or may hold, a write-only value."""
    return any(fault.code == "write_only" or fault.args.get("value") == MASK for fault in faults)


def masked_payload(uplink: Uplink, thing: Thing | None, faults: Iterable[Fault]) -> bytes:
    """Return a refused message with a mask in the place of its write-only values.

    Of a frame, and of a message that cannot be read, nothing is left. Of a reply only its
    command and status are: an error or outputs may repeat what the command has set.
    """
    if thing is None or not thing.tsl.conceals:
        return uplink.payload
    if uplink.channel == "frame":
        return MASK.encode() if holds_write_only(faults) else uplink.payload
    try:
        message = msgspec.json.decode(uplink.payload)
        return msgspec.json.encode(_masked(uplink.channel, message, thing.tsl))
    except (ValueError, RecursionError):
        return MASK.encode()


def _masked(channel: str, message: Any, tsl: Tsl) -> Any:
    if not isinstance(message, dict):
        return MASK
    if channel == "reply":
        shown = {key: message[key] for key in REPLY_SHOWN if key in message}
        return dict.fromkeys(message, MASK) | {
            key: value for key, value in shown.items() if isinstance(value, int | str)
        }
    properties = message.get("properties")
    masked = tsl.masked(message)
    if channel == "report" and properties is not None:
        masked["properties"] = tsl.masked(properties) if isinstance(properties, dict) else MASK
    return masked
