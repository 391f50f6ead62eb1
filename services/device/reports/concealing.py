"""Write-only values in what devices send: nobody reads them in what is kept of a message."""

from collections.abc import Iterable

import msgspec

from libs.common.tsl import MASK, Fault
from services.device.reports.uplink import Uplink
from services.device.things import Thing


def holds_write_only(faults: Iterable[Fault]) -> bool:
    """Return whether a message was refused, whole or in part, for a write-only value."""
    return any(fault.code == "write_only" for fault in faults)


def masked_payload(uplink: Uplink, thing: Thing | None, faults: Iterable[Fault]) -> bytes:
    """Return a refused message with a mask in the place of its write-only values.

    Of a frame, and of a report that cannot be read as one, nothing is left.
    """
    if thing is None or not thing.tsl.conceals:
        return uplink.payload
    if uplink.channel == "frame":
        return MASK.encode() if holds_write_only(faults) else uplink.payload
    if uplink.channel != "report":
        return uplink.payload
    try:
        message = msgspec.json.decode(uplink.payload)
    except (ValueError, RecursionError):
        return MASK.encode()
    properties = message.get("properties") if isinstance(message, dict) else None
    if not isinstance(properties, dict):
        return MASK.encode()
    return msgspec.json.encode({**message, "properties": thing.tsl.masked(properties)})
