"""Maintenance of nats-server: its streams, and restarts after a full disk.

The first server of a new cluster has streams on its disk that the cluster does not know.
`adopt_streams` creates each of them with its name and configuration on that server only;
nats-server then loads the messages and consumers from disk, as at every start. Then the stream gets
its replicas, which copy from that server (nats-server 2.15; decision 0025). Known streams are
skipped, so the next start completes an interrupted adoption.

A stream that failed to write once rejects all messages until its server restarts, even when the
disk has free space again (nats-server 2.15, "critical write error"). In a cluster the server shuts
down all of JetStream. `restart_when_stuck` therefore restarts it. MongoDB needs no such help: it
exits when the disk is full, and the supervisor restarts it.
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
from deploy.platform.admin import JetStreamFault
from deploy.platform.errors import Exit, LauncherError
from deploy.platform.nats_grants import SYSTEM_USER
from deploy.platform.state import Addresses
from libs.common.bus.accounts import ACCOUNT
from libs.common.bus.streams import RETAINED, STREAMS

_CONFIGURATION_FILE = "meta.inf"
_STREAMS_IN_MEMORY: dict[str, dict[str, Any]] = {
    "$MQTT_qos2in": {"subjects": ["$MQTT.qos2.in.>"], "max_msgs_per_subject": 1},
    "$MQTT_out": {"subjects": ["$MQTT.out.>"], "retention": "interest"},
    RETAINED: STREAMS[RETAINED].as_dict(),
}
"""The streams for QoS 2 and retained messages, which the platform does not offer.

nats-server creates them on disk for the first client."""


async def keep_unused_streams_in_memory(addresses: Addresses, password: str) -> None:
    """Create the streams that no service reads in memory, even if they are on disk.

    nats-server syncs each stream on the disk ten times a second. Raises `LauncherError` (exit code
    1) if it rejects a stream.
    """
    client = await admin.log_in(addresses, password)
    try:
        for name, config in _STREAMS_IN_MEMORY.items():
            reply = await admin.call_jetstream(client, f"STREAM.INFO.{name}")
            if reply.error is None and reply.config["storage"] == "file":
                await _require_success(client, f"STREAM.DELETE.{name}", None)
            elif not reply.is_missing:
                continue
            body = config | {"name": name, "storage": "memory"}
            await _require_success(client, f"STREAM.CREATE.{name}", body)
    finally:
        await client.close()


async def adopt_streams(
    store: Path, addresses: Addresses, password: str, server: str, replicas: int
) -> None:
    """Let the cluster adopt the streams in `store`, the directory of server `server`.

    Raises `LauncherError` (exit code 1) if the cluster rejects a stream.
    """
    streams = store / "jetstream" / ACCOUNT / "streams"
    client = await admin.log_in(addresses, password)
    try:
        for stream in _list_directories(streams):
            await _adopt_stream(client, stream, server, replicas)
    finally:
        await client.close()


async def _adopt_stream(client: Client, stream: Path, server: str, replicas: int) -> None:
    name = stream.name
    reply = await admin.call_jetstream(client, f"STREAM.INFO.{name}", None)
    if reply.error is None:
        return
    if not reply.is_missing:
        raise _adoption_error(name, reply.error)
    config = _read_config(stream)
    await _require_success(
        client, f"STREAM.CREATE.{name}", config | {"placement": {"tags": [server]}}
    )
    for consumer in _list_directories(stream / "obs"):
        body = {"stream_name": name, "config": _read_config(consumer)}
        await _require_success(client, f"CONSUMER.CREATE.{name}.{consumer.name}", body)
    await _require_success(client, f"STREAM.UPDATE.{name}", config | {"num_replicas": replicas})


def _list_directories(directory: Path) -> list[Path]:
    """Return the directories of the streams or consumers below a directory."""
    return sorted(found.parent for found in directory.glob(f"*/{_CONFIGURATION_FILE}"))


def _read_config(directory: Path) -> dict[str, Any]:
    """Return the stored configuration, without the fields that nats-server adds."""
    stored_config = msgspec.json.decode(
        (directory / _CONFIGURATION_FILE).read_bytes(), type=dict[str, Any]
    )
    return {key: value for key, value in stored_config.items() if key not in ("Created", "Name")}


async def _require_success(client: Client, operation: str, body: Any) -> None:
    answer = await admin.call_jetstream(client, operation, body)
    if answer.error is not None:
        raise _adoption_error(operation, answer.error)


def _adoption_error(what: str, fault: JetStreamFault) -> LauncherError:
    return LauncherError(f"NATS rejects {what}: {fault.description}", Exit.FAILED)


CHECK_SECONDS = 10.0
"""Seconds between two health checks."""
REQUIRED_BYTES = 512 * 1024**2
"""Free bytes required for a restart; with less the server would fail again."""
_HEALTH = "$SYS.REQ.SERVER.PING.HEALTHZ"
_HEALTH_SECONDS = 5.0
_STUCK_ERRORS = ("write error", "JetStream not enabled")


class _HealthFault(msgspec.Struct):
    error: str = ""


class _Health(msgspec.Struct):
    errors: list[_HealthFault] = []


class _HealthAnswer(msgspec.Struct):
    data: _Health


async def restart_when_stuck(
    is_stuck: Callable[[], Awaitable[bool]], free: Callable[[], int], restart: Callable[[], object]
) -> None:
    """Call `restart` when the server is stuck and the disk has space; never return."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        if await is_stuck() and free() >= REQUIRED_BYTES:
            restart()


async def is_stuck(addresses: Addresses, password: str, name: str) -> bool:
    """Ask the server, as system user, whether it stopped writing to streams.

    Returns False if the server does not reply, because it is starting or stopping.
    """
    try:
        client = await admin.log_in(addresses, password, SYSTEM_USER)
    except (NatsError, OSError, TimeoutError):
        return False
    try:
        request = msgspec.json.encode({"details": True, "server_name": name})
        answer = await client.request(_HEALTH, request, timeout=_HEALTH_SECONDS)
        health = msgspec.json.decode(answer.data, type=_HealthAnswer).data
    except (NatsError, TimeoutError, msgspec.MsgspecError):
        return False
    finally:
        await client.close()
    return any(text in fault.error for fault in health.errors for text in _STUCK_ERRORS)


def free_bytes(directory: Path) -> int:
    """Return the free bytes of the directory's file system."""
    return shutil.disk_usage(directory).free
