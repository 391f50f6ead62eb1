"""Redis-compatible servers: a user per service, written to disk every second."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from deploy.platform.ports import LOOPBACK
from libs.common.jobs import retry

PRIMARY_NAME = "thingway"
"""Name by which Sentinels identify the primary."""
SENTINEL_QUORUM = 2
DOWN_AFTER_MS = 3000
"""Milliseconds without reply after which a Sentinel treats a server as down."""
FAILOVER_TIMEOUT_MS = 10_000
_BACKGROUND_RUNS_PER_SECOND = "4"
"""Background runs per second. Writes are on disk after 1.25 s; with the default of 10, 1.1 s."""
_DISABLED_DEFAULT_USER = "user default off resetkeys resetchannels -@all"
_SENTINEL_PERMISSIONS = (
    "allchannels +multi +slaveof +ping +exec +subscribe +config|rewrite +role +publish +info "
    "+client|setname +client|kill +script|kill"
)
"""https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/, "ACL"."""
_EXPORTER_PERMISSIONS = "+@connection -@dangerous +info +slowlog|len +slowlog|get +latency|latest"
_MONITOR_PATTERN = re.compile(rf"^sentinel monitor {PRIMARY_NAME} (\S+) (\d+) ", re.MULTILINE)
_EPOCH_PATTERN = re.compile(rf"^sentinel config-epoch {PRIMARY_NAME} (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class RedisUser:
    """A Redis user, whose keys and channels match one pattern."""

    name: str
    password: str
    pattern: str
    reads: bool = False
    """Whether its permissions only allow reading keys."""

    def url(self, server: str) -> str:
        """Return the connection string for a server (`host:port`)."""
        return f"redis://{self.name}:{self.password}@{server}/0"

    def sentinel_url(self, sentinels: Sequence[str]) -> str:
        """Return the connection string for the primary that Sentinels name."""
        login = f"{self.name}:{self.password}"
        return f"redis+sentinel://{login}@{','.join(sentinels)}/{PRIMARY_NAME}"


@dataclass(frozen=True)
class ClusterPasswords:
    """Passwords of replicas and Sentinels."""

    replica: str
    """Password of a replica at its primary."""
    sentinel: str
    """Password of Sentinels at servers and other Sentinels."""


def render_acl(
    users: list[RedisUser], cluster: ClusterPasswords | None = None, exporter: str = ""
) -> str:
    """Return the ACL file: only named users, with hashed passwords.

    `exporter` is the password of a Prometheus exporter, or empty without one.

    Administrative and dangerous commands (`FLUSHALL`, `KEYS`, `CONFIG`) are forbidden, except those
    that replicas, Sentinels and metrics (`INFO`) need.
    """
    lines = [_DISABLED_DEFAULT_USER]
    for user in users:
        permissions = (
            f"%R~{user.pattern} +@read +@connection -@dangerous"
            if user.reads
            else f"~{user.pattern} &{user.pattern} +@all -@admin -@dangerous +info"
        )
        lines.append(_render_user(user.name, user.password, permissions))
    if exporter:
        lines.append(_render_user("exporter", exporter, _EXPORTER_PERMISSIONS))
    if cluster is not None:
        lines.append(_render_user("replica", cluster.replica, "+psync +replconf +ping"))
        lines.append(_render_user("sentinel", cluster.sentinel, _SENTINEL_PERMISSIONS))
    return "\n".join(lines) + "\n"


def render_sentinel_acl(users: list[RedisUser], cluster: ClusterPasswords) -> str:
    """Return the ACL file of a Sentinel: services may only look up the primary."""
    permissions = "+@connection -@dangerous +sentinel|masters +sentinel|get-master-addr-by-name"
    lines = [
        _DISABLED_DEFAULT_USER,
        *(_render_user(user.name, user.password, permissions) for user in users),
    ]
    lines.append(_render_user("sentinel", cluster.sentinel, "allchannels +@all"))
    return "\n".join(lines) + "\n"


def _render_user(name: str, password: str, permissions: str) -> str:
    digest = hashlib.sha256(password.encode()).hexdigest()
    return f"user {name} on #{digest} {permissions}"


def durable_settings(acl_file: Path) -> dict[str, str]:
    """Return the settings with which Redis has users and writes to disk each second."""
    return {"appendonly": "yes", "appendfsync": "everysec", "aclfile": str(acl_file)}


def render_member_config(
    data: Path, server: str, acl_file: Path, logins: ClusterPasswords, primary: str
) -> str:
    """Return the configuration of a cluster member, which Sentinels rewrite.

    `server` and `primary` are `host:port`; all members except the primary start as its replicas.
    """
    host, _, port = server.rpartition(":")
    lines = _server_settings(data, host, port, durable_settings(acl_file))
    lines |= {"masteruser": "replica", "masterauth": logins.replica}
    if server != primary:
        lines["replicaof"] = primary.replace(":", " ")
    return _render_lines(lines)


def render_sentinel_config(
    data: Path, server: str, acl_file: Path, logins: ClusterPasswords, primary: str
) -> str:
    """Return the configuration of a Sentinel, which it rewrites itself."""
    host, _, port = server.rpartition(":")
    sentinel_line = f"sentinel {{}} {PRIMARY_NAME}"
    return _render_lines(
        {
            "bind": host,
            "port": port,
            "dir": str(data),
            "daemonize": "no",
            "aclfile": str(acl_file),
            "sentinel sentinel-user": "sentinel",
            "sentinel sentinel-pass": logins.sentinel,
            sentinel_line.format("monitor"): f"{primary.replace(':', ' ')} {SENTINEL_QUORUM}",
            sentinel_line.format("auth-user"): "sentinel",
            sentinel_line.format("auth-pass"): logins.sentinel,
            sentinel_line.format("down-after-milliseconds"): str(DOWN_AFTER_MS),
            sentinel_line.format("failover-timeout"): str(FAILOVER_TIMEOUT_MS),
        }
    )


def read_primary(sentinels: Iterable[str]) -> str | None:
    """Return the primary (`host:port`) in the newest Sentinel configuration, or None."""
    reported = [
        (int(epoch[1]) if (epoch := _EPOCH_PATTERN.search(text)) else 0, f"{match[1]}:{match[2]}")
        for text in sentinels
        if (match := _MONITOR_PATTERN.search(text))
    ]
    return max(reported)[1] if reported else None


def server_command(program: Path, data: Path, server: str, acl_file: Path) -> list[str]:
    """Return the command line of a single server."""
    host, _, port = server.rpartition(":")
    settings = {**durable_settings(acl_file), "hz": _BACKGROUND_RUNS_PER_SECOND}
    return _build_command(program, _server_settings(data, host, port, settings))


def _server_settings(data: Path, host: str, port: str, more: Mapping[str, str]) -> dict[str, str]:
    where = {"bind": host, "port": port, "dir": str(data)}
    return {**where, "daemonize": "no", "save": "", **more}


def _build_command(program: Path, settings: Mapping[str, str]) -> list[str]:
    return [
        str(program),
        *(part for key, value in settings.items() for part in (f"--{key}", value)),
    ]


def _render_lines(settings: Mapping[str, str]) -> str:
    quoted = {"dir", "aclfile", "save"}
    return "".join(
        f"{key} {json.dumps(value) if key in quoted else value}\n"
        for key, value in settings.items()
    )


def bare_server_command(
    program: Path, data: Path, port: int, options: Mapping[str, str] | None = None
) -> list[str]:
    """Return the command line without users and persistence, for tests."""
    return _build_command(program, _server_settings(data, LOOPBACK, str(port), options or {}))


async def wait_ready(url: str) -> None:
    """Wait until the server answers the user in `url`; the caller limits the time."""
    async with Redis.from_url(url, socket_connect_timeout=1) as client:
        await retry(client.ping, RedisConnectionError, RedisTimeoutError)
