"""Which part of what a device has said a caller asks for, the newest first."""

from dataclasses import dataclass
from typing import NamedTuple

from libs.common.clock import now_ms
from libs.common.errors import InvalidInput
from libs.common.identity import Principal
from services.device.telemetry.history import decode_key
from services.device.telemetry.partitions import LAST, history_key
from services.device.things.directory import GrantedDevices, ThingDirectory
from services.device.things.model import Device


class Window(NamedTuple):
    """Keys of what is asked for."""

    device: Device
    first: bytes
    """Nothing is of before the device's owner had it."""
    last: bytes
    """The end, or where the page before has ended."""
    continued: bool
    """Whether there was a page before."""


@dataclass(frozen=True)
class Windows:
    """Answers who may see the device; times are ms.

    Raises `InvalidInput` for bounds or a cursor that cannot be, `NotFound` for a device that the
    caller may not see.
    """

    things: ThingDirectory
    granted: GrantedDevices

    async def of_application(
        self,
        principal: Principal,
        device_id: int,
        start: int | None,
        end: int | None,
        key: str | None,
    ) -> Window:
        """What an application asks for."""
        device = await self.things.device(principal, device_id)
        return _window(device, start, end, key, ("endTime", "pageKey"))

    async def of_user(
        self,
        principal: Principal,
        device_id: int,
        start: int | None,
        end: int | None,
        key: str | None,
    ) -> Window:
        """What a user asks for; raises `Forbidden`, too, for one who sees nothing at all."""
        device = await self.granted.find(principal, device_id)
        return _window(device, start, end, key, ("end_timestamp", "next_key"))


def _window(
    device: Device, start: int | None, end: int | None, key: str | None, fields: tuple[str, str]
) -> Window:
    """`fields` are the names of the end and of the cursor."""
    if start is not None and end is not None and start > end:
        raise InvalidInput("must not be before the start", field=fields[0])
    first = history_key(device.id, max(start or 0, device.owned_since), 0)
    last = history_key(device.id, now_ms() if end is None else end, LAST)
    if key is not None:
        last = min(last, decode_key(key, device.id, fields[1]))
    return Window(device, first, last, continued=key is not None)
