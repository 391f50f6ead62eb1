"""Care for nats-server's streams: adoption by a cluster, and restarts after a full disk.

The first server of the cluster has them on its disk, and the cluster knows nothing of them. Each
is made there under its own name and configuration, on that server and no other: it takes what it
has on disk, messages and consumers with their places, as it does at every start. Then it gets its
replicas, which copy from it (nats-server 2.15; decision 0025). A stream that the cluster knows is
left alone, so a start that was broken off is completed by the next.

Starts nats-server again when it has stopped writing and the disk has room.

A stream that could not write once refuses everything until the server is started anew, however
much room there is by then (nats-server 2.15, "critical write error"); in a cluster the server shuts
all of JetStream down. MongoDB ends itself when
the disk is full, and is started again like everything that ends.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError

from deploy.platform import admin
from deploy.platform.errors import Exit, LauncherError
from deploy.platform.nats_grants import SYSTEM_USER
from deploy.platform.state import Addresses
from libs.common.bus.accounts import ACCOUNT

_ANSWER_SECONDS = 10.0
_NOT_FOUND = 10059
"""JetStream's code of a stream that is not there."""
_META = "meta.inf"


class _Fault(msgspec.Struct):
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct):
    error: _Fault | None = None


async def adopt(
    store: Path, addresses: Addresses, password: str, server: str, replicas: int
) -> None:
    """Take over the streams in `store`, the directory of the server with the tag `server`.

    Raises `LauncherError` (exit code 1) when the cluster refuses one.
    """
    streams = store / "jetstream" / ACCOUNT / "streams"
    client = await admin.log_in(addresses, password)
    try:
        for stream in _below(streams):
            await _adopt_stream(client, stream, server, replicas)
    finally:
        await client.close()


async def _adopt_stream(client: Client, stream: Path, server: str, replicas: int) -> None:
    name = stream.name
    known = await _ask(client, f"STREAM.INFO.{name}", None)
    if known.error is None:
        return
    if known.error.err_code != _NOT_FOUND:
        raise _refused(name, known.error)
    config = _kept(stream)
    await _do(client, f"STREAM.CREATE.{name}", config | {"placement": {"tags": [server]}})
    for consumer in _below(stream / "obs"):
        body = {"stream_name": name, "config": _kept(consumer)}
        await _do(client, f"CONSUMER.CREATE.{name}.{consumer.name}", body)
    await _do(client, f"STREAM.UPDATE.{name}", config | {"num_replicas": replicas})


def _below(directory: Path) -> list[Path]:
    """The directories of streams, or of consumers."""
    return sorted(found.parent for found in directory.glob(f"*/{_META}"))


def _kept(directory: Path) -> dict[str, Any]:
    """The configuration that nats-server keeps, without what it adds itself."""
    kept = msgspec.json.decode((directory / _META).read_bytes(), type=dict[str, Any])
    return {key: value for key, value in kept.items() if key not in ("Created", "Name")}


async def _do(client: Client, operation: str, body: Any) -> None:
    answer = await _ask(client, operation, body)
    if answer.error is not None:
        raise _refused(operation, answer.error)


async def _ask(client: Client, operation: str, body: Any) -> _Answer:
    content = b"" if body is None else msgspec.json.encode(body)
    answer = await client.request(f"$JS.API.{operation}", content, timeout=_ANSWER_SECONDS)
    return msgspec.json.decode(answer.data, type=_Answer)


def _refused(what: str, fault: _Fault) -> LauncherError:
    return LauncherError(f"NATS cannot take over {what}: {fault.description}", Exit.FAILED)


PERIOD = 10.0
"""Seconds between two looks."""
ROOM = 512 * 1024**2
"""Bytes that must be free; with less the server would fail again at once."""
_HEALTH = "$SYS.REQ.SERVER.PING.HEALTHZ"
_HEALTH_SECONDS = 5.0
_STUCK = ("write error", "JetStream not enabled")


class _HealthFault(msgspec.Struct):
    error: str = ""


class _Health(msgspec.Struct):
    errors: list[_HealthFault] = []


class _HealthAnswer(msgspec.Struct):
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
        answer = await client.request(_HEALTH, question, timeout=_HEALTH_SECONDS)
        health = msgspec.json.decode(answer.data, type=_HealthAnswer).data
    except (NatsError, TimeoutError, msgspec.MsgspecError):
        return False
    finally:
        await client.close()
    return any(said in fault.error for fault in health.errors for said in _STUCK)


def free_bytes(directory: Path) -> int:
    """The bytes that are free where the data are."""
    return shutil.disk_usage(directory).free
