"""Starts nats-server again when it has stopped writing and the disk has room.

A stream that could not write once refuses everything until the server is started anew, however
much room there is by then (nats-server 2.15, "critical write error"); in a cluster the server shuts
all of JetStream down. MongoDB ends itself when
the disk is full, and is started again like everything that ends.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from nats.errors import Error as NatsError

from deploy.platform import admin
from deploy.platform.nats import SYSTEM_USER
from deploy.platform.state import Addresses

PERIOD = 10.0
"""Seconds between two looks."""
ROOM = 512 * 1024**2
"""Bytes that must be free; with less the server would fail again at once."""
_HEALTH = "$SYS.REQ.SERVER.PING.HEALTHZ"
_ANSWER_SECONDS = 5.0
_STUCK = ("write error", "JetStream not enabled")


class _Fault(msgspec.Struct):
    error: str = ""


class _Health(msgspec.Struct):
    errors: list[_Fault] = []


class _Answer(msgspec.Struct):
    data: _Health


async def keep_writing(
    is_stuck: Callable[[], Awaitable[bool]], free: Callable[[], int], restart: Callable[[], object]
) -> None:
    """Call `restart` whenever the server is stuck and `free` bytes are enough; for ever."""
    while True:
        await asyncio.sleep(PERIOD)
        if await is_stuck() and free() >= ROOM:
            restart()


async def is_stuck(addresses: Addresses, password: str, name: str) -> bool:
    """Whether the server `name` has stopped writing, a stream or all: the system user asks it.

    False when the server does not answer: it is being started, or ends.
    """
    try:
        client = await admin.log_in(addresses, password, SYSTEM_USER)
    except (NatsError, OSError, TimeoutError):
        return False
    try:
        question = msgspec.json.encode({"details": True, "server_name": name})
        answer = await client.request(_HEALTH, question, timeout=_ANSWER_SECONDS)
        health = msgspec.json.decode(answer.data, type=_Answer).data
    except (NatsError, TimeoutError, msgspec.MsgspecError):
        return False
    finally:
        await client.close()
    return any(said in fault.error for fault in health.errors for said in _STUCK)


def free_bytes(directory: Path) -> int:
    """The bytes that are free where the data are."""
    return shutil.disk_usage(directory).free
