"""The launcher restarts nats-server after a full disk, once there is free space."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from deploy.local import jetstream
from deploy.platform.state import Addresses


async def count_restarts(checks: list[tuple[bool, int]], monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the number of restarts for a series of checks (stuck, free bytes)."""
    monkeypatch.setattr(jetstream, "HEALTH_CHECK_INTERVAL_SECONDS", 0)
    upcoming, done = iter(checks), asyncio.Event()
    count, free = 0, 0

    async def is_stuck() -> bool:
        nonlocal free
        stuck, free = next(upcoming, (False, 0))
        if (stuck, free) == (False, 0):
            done.set()
        return stuck

    def restart() -> None:
        nonlocal count
        count += 1

    job = asyncio.create_task(jetstream.restart_when_stuck(is_stuck, lambda: free, restart))
    await done.wait()
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)
    return count


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ([(False, jetstream.MIN_FREE_BYTES_FOR_RESTART)], 0),
        ([(True, jetstream.MIN_FREE_BYTES_FOR_RESTART - 1)], 0),
        ([(True, jetstream.MIN_FREE_BYTES_FOR_RESTART)], 1),
        (
            [
                (True, 0),
                (True, 0),
                (True, jetstream.MIN_FREE_BYTES_FOR_RESTART),
                (False, jetstream.MIN_FREE_BYTES_FOR_RESTART),
            ],
            1,
        ),
        (
            [
                (True, jetstream.MIN_FREE_BYTES_FOR_RESTART),
                (False, jetstream.MIN_FREE_BYTES_FOR_RESTART),
                (True, jetstream.MIN_FREE_BYTES_FOR_RESTART),
            ],
            2,
        ),
    ],
)
async def test_a_stuck_server_is_restarted_when_space_is_free(checks, expected, monkeypatch):
    """A healthy server, and one without free space, is not restarted."""
    assert await count_restarts(checks, monkeypatch) == expected


async def test_a_server_without_reply_is_not_stuck():
    """It is starting or stopping; the supervisor handles that."""
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
async def test_a_server_is_stuck_after_a_write_error(errors, expected, monkeypatch):
    """A single server reports the stream, a cluster member reports JetStream."""

    class Client:
        async def request(self, *_: object, **__: object) -> SimpleNamespace:
            return SimpleNamespace(data=msgspec.json.encode({"data": {"errors": errors}}))

        async def close(self) -> None:
            """Do nothing."""

    async def log_in(*_: object) -> Client:
        return Client()

    monkeypatch.setattr(jetstream.admin, "log_in_once", log_in)

    assert await jetstream.is_stuck(Addresses("", "", "nats://x"), "x", "thingway") is expected
