"""nats-server is started again when it has stopped writing, and not before there is room."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from deploy.local import jetstream
from deploy.platform.state import Addresses


async def restarts(looks: list[tuple[bool, int]], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the server is restarted when it is found like that: stuck, bytes that are free."""
    monkeypatch.setattr(jetstream, "PERIOD", 0)
    coming, done = iter(looks), asyncio.Event()
    count, free = 0, 0

    async def is_stuck() -> bool:
        nonlocal free
        stuck, free = next(coming, (False, 0))
        if (stuck, free) == (False, 0):
            done.set()
        return stuck

    def restart() -> None:
        nonlocal count
        count += 1

    keeping = asyncio.create_task(jetstream.keep_writing(is_stuck, lambda: free, restart))
    await done.wait()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    return count


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([(False, jetstream.ROOM)], 0),
        ([(True, jetstream.ROOM - 1)], 0),
        ([(True, jetstream.ROOM)], 1),
        ([(True, 0), (True, 0), (True, jetstream.ROOM), (False, jetstream.ROOM)], 1),
        ([(True, jetstream.ROOM), (False, jetstream.ROOM), (True, jetstream.ROOM)], 2),
    ],
)
async def test_a_stuck_server_is_restarted_once_there_is_room(looks, expected, monkeypatch):
    """A healthy server, and one that would fail again at once, are left alone."""
    assert await restarts(looks, monkeypatch) == expected


async def test_a_server_that_does_not_answer_is_not_stuck():
    """It is being started or ends; the supervisor sees to that."""
    addresses = Addresses("", "", "nats://127.0.0.1:1")
    assert await jetstream.is_stuck(addresses, "x", "thingway") is False


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([], False),
        ([{"type": "STREAM", "error": "stream 'EVENTS' is not current"}], False),
        ([{"type": "STREAM", "error": "Critical write error: no space left on device"}], True),
        ([{"type": "JETSTREAM", "error": "JetStream not enabled (10076)"}], True),
    ],
)
async def test_a_server_is_stuck_when_a_stream_or_all_of_them_are_closed(
    errors, expected, monkeypatch
):
    """The one is said by a server alone, the other in a cluster (2.15); to catch up is neither."""

    class Client:
        async def request(self, *_: object, **__: object) -> SimpleNamespace:
            return SimpleNamespace(data=msgspec.json.encode({"data": {"errors": errors}}))

        async def close(self) -> None:
            """Nothing is open."""

    async def log_in(*_: object) -> Client:
        return Client()

    monkeypatch.setattr(jetstream.admin, "log_in", log_in)

    assert await jetstream.is_stuck(Addresses("", "", "nats://x"), "x", "thingway") is expected
