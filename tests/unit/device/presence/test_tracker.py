"""Which devices are connected, from a picture and from events."""

import asyncio
from typing import Any

import msgspec
import pytest

from services.device.presence.connections import Change, Tracker, next_changes


def change(sn: str, number: int, reason: str | None = None, **client: Any) -> Change:
    body = {
        "server": {"id": "A"},
        "client": {"id": number, "user": sn, "issuer_key": "K", **client},
        **({"reason": reason} if reason is not None else {}),
    }
    return msgspec.convert(body, Change)


def test_a_connection_makes_a_device_connected_until_it_ends():
    """Whatever the case of the SN."""
    tracker = Tracker()
    assert tracker.apply([change("sn1", 1)]) == {"SN1"}
    assert tracker.connected == {"SN1"}
    assert tracker.apply([change("Sn1", 1, "Client Closed")]) == {"SN1"}
    assert not tracker.is_connected("SN1")


@pytest.mark.parametrize("new_first", [True, False])
def test_a_takeover_keeps_the_device_connected(*, new_first: bool):
    """The new connection may be told before the old one ends, or after."""
    tracker = Tracker()
    tracker.apply([change("SN1", 1)])
    events = [change("SN1", 2), change("SN1", 1, "Duplicate")]
    tracker.apply(events if new_first else events[::-1])
    assert tracker.is_connected("SN1")
    tracker.apply([change("SN1", 1, "late copy")])
    assert tracker.is_connected("SN1")


def test_an_end_that_was_never_begun_is_told_of():
    """An event that was lost before does not hide that the device is gone."""
    tracker = Tracker()
    assert tracker.apply([change("SN1", 1, "x")]) == {"SN1"}
    assert tracker.connected == set()


def test_events_that_came_while_the_picture_was_drawn_fit_into_it():
    """What stands in the picture and comes as an event again counts once."""
    tracker = Tracker()
    tracker.replace({"SN1": {("A", 1)}})
    tracker.apply([change("SN1", 1), change("SN1", 1, "x")])
    assert tracker.connected == set()


def test_connections_of_servers_with_the_same_number_differ():
    """The connection id belongs to its server."""
    tracker = Tracker()
    tracker.replace({"SN1": {("A", 1), ("B", 1)}})
    tracker.apply([change("SN1", 1, "x")])
    assert tracker.is_connected("SN1")


@pytest.mark.parametrize("client", [{"issuer_key": ""}, {"user": ""}, {"user": "app.1"}])
def test_services_and_applications_are_no_devices(client: dict[str, Any]):
    """Only who came through the auth callout with an SN is a device."""
    assert Tracker().apply([change("SN1", 1, **client)]) == set()


async def test_all_changes_that_are_there_come_together():
    """The first is waited for, the others are taken along, and silence is an empty list."""
    queue: asyncio.Queue[Change] = asyncio.Queue()
    assert await next_changes(queue, 0.01) == []
    for number in range(3):
        queue.put_nowait(change("SN1", number))
    assert [one.client.id for one in await next_changes(queue, 1)] == [0, 1, 2]
