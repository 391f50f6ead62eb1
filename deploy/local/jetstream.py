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
from deploy.platform.admin import JetStreamError
from deploy.platform.errors import Exit, LauncherError
from deploy.platform.nats_grants import SYSTEM_USER
from deploy.platform.state import Addresses
from libs.common.bus.accounts import PLATFORM_ACCOUNT
from libs.common.bus.streams import RETAINED, STREAM_CONFIGS

_CONFIGURATION_FILE = "meta.inf"
_STREAMS_IN_MEMORY: dict[str, dict[str, Any]] = {
    "$MQTT_qos2in": {"subjects": ["$MQTT.qos2.in.>"], "max_msgs_per_subject": 1},
    "$MQTT_out": {"subjects": ["$MQTT.out.>"], "retention": "interest"},
    RETAINED: STREAM_CONFIGS[RETAINED].as_dict(),
}
"""Configuration by name of the streams for MQTT features that the platform does not offer.

These are QoS 2 and retained messages. nats-server creates the streams on disk for the first
client."""


async def keep_mqtt_streams_in_memory(addresses: Addresses, password: str) -> None:
    """Create in memory the streams that no service reads; delete them on disk.

    nats-server syncs each stream on the disk ten times a second. Raises `LauncherError` (exit code
    1) if it rejects a stream.
    """
    client = await admin.log_in_once(addresses, password)
    try:
        for name, config in _STREAMS_IN_MEMORY.items():
            reply = await admin.call_jetstream(client, f"STREAM.INFO.{name}")
            if reply.error is None and reply.config["storage"] == "file":
                await _call_or_raise(client, f"STREAM.DELETE.{name}", None)
            elif not reply.is_stream_missing:
                continue
            body = config | {"name": name, "storage": "memory"}
            await _call_or_raise(client, f"STREAM.CREATE.{name}", body)
    finally:
        await client.close()


async def adopt_streams(
    store: Path, addresses: Addresses, password: str, server: str, replicas: int
) -> None:
    """Let the cluster adopt the streams in `store`, the directory of server `server`.

    Raises `LauncherError` (exit code 1) if the cluster rejects a stream.
    """
    streams = store / "jetstream" / PLATFORM_ACCOUNT / "streams"
    client = await admin.log_in_once(addresses, password)
    try:
        for stream in _find_config_directories(streams):
            await _adopt_stream(client, stream, server, replicas)
    finally:
        await client.close()


async def _adopt_stream(client: Client, stream: Path, server: str, replicas: int) -> None:
    name = stream.name
    reply = await admin.call_jetstream(client, f"STREAM.INFO.{name}", None)
    if reply.error is None:
        return
    if not reply.is_stream_missing:
        raise _rejection_error(name, reply.error)
    config = _read_config(stream)
    await _call_or_raise(
        client, f"STREAM.CREATE.{name}", config | {"placement": {"tags": [server]}}
    )
    for consumer in _find_config_directories(stream / "obs"):
        body = {"stream_name": name, "config": _read_config(consumer)}
        await _call_or_raise(client, f"CONSUMER.CREATE.{name}.{consumer.name}", body)
    await _call_or_raise(client, f"STREAM.UPDATE.{name}", config | {"num_replicas": replicas})


def _find_config_directories(directory: Path) -> list[Path]:
    """Return the directories of the streams or consumers below a directory."""
    return sorted(found.parent for found in directory.glob(f"*/{_CONFIGURATION_FILE}"))


def _read_config(directory: Path) -> dict[str, Any]:
    """Return the stored configuration, without the fields that nats-server adds."""
    stored_config = msgspec.json.decode(
        (directory / _CONFIGURATION_FILE).read_bytes(), type=dict[str, Any]
    )
    return {key: value for key, value in stored_config.items() if key not in ("Created", "Name")}


async def _call_or_raise(client: Client, operation: str, body: Any) -> None:
    answer = await admin.call_jetstream(client, operation, body)
    if answer.error is not None:
        raise _rejection_error(operation, answer.error)


def _rejection_error(what: str, fault: JetStreamError) -> LauncherError:
    return LauncherError(f"NATS rejects {what}: {fault.description}", Exit.FAILED)


HEALTH_CHECK_INTERVAL_SECONDS = 10.0
"""Seconds between two health checks."""
MIN_FREE_BYTES_FOR_RESTART = 512 * 1024**2
"""Minimum free bytes for a restart of a stuck server; with less it would fail again."""
_HEALTH_SUBJECT = "$SYS.REQ.SERVER.PING.HEALTHZ"
_HEALTH_SECONDS = 5.0
_STUCK_ERRORS = ("write error", "JetStream not enabled")


class _HealthError(msgspec.Struct):
    error: str = ""


class _HealthData(msgspec.Struct):
    errors: list[_HealthError] = []


class _HealthReply(msgspec.Struct):
    data: _HealthData


async def restart_when_stuck(
    is_stuck: Callable[[], Awaitable[bool]], free: Callable[[], int], restart: Callable[[], object]
) -> None:
    """Call `restart` each time the server is stuck and the disk has space again."""
    while True:
        await asyncio.sleep(HEALTH_CHECK_INTERVAL_SECONDS)
        if await is_stuck() and free() >= MIN_FREE_BYTES_FOR_RESTART:
            restart()


async def is_stuck(addresses: Addresses, password: str, name: str) -> bool:
    """Ask the server, as system user, whether it stopped writing to streams.

    Returns False if the server does not reply, because it is starting or stopping.
    """
    try:
        client = await admin.log_in_once(addresses, password, SYSTEM_USER)
    except (NatsError, OSError, TimeoutError):
        return False
    try:
        request = msgspec.json.encode({"details": True, "server_name": name})
        answer = await client.request(_HEALTH_SUBJECT, request, timeout=_HEALTH_SECONDS)
        health = msgspec.json.decode(answer.data, type=_HealthReply).data
    except (NatsError, TimeoutError, msgspec.MsgspecError):
        return False
    finally:
        await client.close()
    return any(text in fault.error for fault in health.errors for text in _STUCK_ERRORS)


def measure_free_bytes(directory: Path) -> int:
    """Return the free bytes of the directory's file system."""
    return shutil.disk_usage(directory).free
