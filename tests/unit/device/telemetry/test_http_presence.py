"""Notes of devices that were heard over HTTP."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from services.device.telemetry import presence_store as http_presence
from services.device.telemetry.presence_store import HttpPresence
from services.device.things.model import Thing
from tests.unit.device.things.examples import thing


class Locked:
    """A store in which the records of one tenant are locked, ids 1 to 999."""

    def __init__(self) -> None:
        self.noted: list[int] = []

    async def record_contact(self, device_id: int, at: datetime, lifetime: timedelta) -> None:
        if device_id < 1000:
            await asyncio.Event().wait()
        self.noted.append(device_id)

    async def record_contacts(self, ids: list[int], at: datetime, lifetime: timedelta) -> None:
        for id_ in ids:
            await self.record_contact(id_, at, lifetime)


class Usual:
    """Stands for the limits of products: none has its own."""

    async def find_lifetime(self, thing: Thing) -> None:
        return None


async def test_locked_records_of_one_tenant_do_not_delay_others(monkeypatch: pytest.MonkeyPatch):
    """Whether devices speak one by one or together."""
    monkeypatch.setattr(http_presence, "MAX_RECORD_WAIT_SECONDS", 0.0)
    store: Any = Locked()
    presence = HttpPresence(store, 60, Usual())
    loud = [thing(id=number, tenant="loud") for number in range(1, 100)]
    await asyncio.gather(*map(presence.record_contact, loud))
    await presence.record_contacts([thing(id=100, tenant="loud"), thing(id=1001, tenant="a")])
    monkeypatch.setattr(http_presence, "MAX_RECORD_WAIT_SECONDS", 30.0)
    await presence.record_contact(thing(id=1000, tenant="quiet"))
    await presence.record_contacts([thing(id=1002, tenant="quiet"), thing(id=1003, tenant="quiet")])
    assert store.noted == [1001, 1000, 1002, 1003]
    await presence.stop()
