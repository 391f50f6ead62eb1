"""The embedded Redis-compatible servers: a user per service, written every second."""

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

PRIMARY = "thingway"
"""What Sentinels call the primary."""
QUORUM = 2
DOWN_AFTER_MS = 3000
"""Silence after which a Sentinel takes a server for gone."""
FAILOVER_MS = 10_000
_NOBODY = "user default off resetkeys resetchannels -@all"
_SENTINEL_MAY = (
    "allchannels +multi +slaveof +ping +exec +subscribe +config|rewrite +role +publish +info "
    "+client|setname +client|kill +script|kill"
)
"""https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/, "ACL"."""
_MONITOR = re.compile(rf"^sentinel monitor {PRIMARY} (\S+) (\d+) ", re.MULTILINE)
_EPOCH = re.compile(rf"^sentinel config-epoch {PRIMARY} (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class KeyUser:
    """A user of the keys and channels that match one pattern."""

    name: str
    password: str
    pattern: str
    reads: bool = False
    """Only reads; writes nothing and runs no script."""

    def url(self, server: str) -> str:
        """The connection string of this user for a server (`host:port`)."""
        return f"redis://{self.name}:{self.password}@{server}/0"

    def sentinel_url(self, sentinels: Sequence[str]) -> str:
        """The connection string for the primary that Sentinels name."""
        login = f"{self.name}:{self.password}"
        return f"redis+sentinel://{login}@{','.join(sentinels)}/{PRIMARY}"


@dataclass(frozen=True)
class ClusterLogins:
    """Passwords of those who keep the servers together."""

    replica: str
    """With which a replica follows its primary."""
    sentinel: str
    """With which Sentinels watch the servers, and speak to each other."""


def render_acl(users: list[KeyUser], cluster: ClusterLogins | None = None) -> str:
    """The ACL file: named users with hashed passwords, nobody else.

    Administration and dangerous commands (`FLUSHALL`, `KEYS`, `CONFIG`) are nobody's, but what
    replicas and Sentinels need.
    """
    lines = [_NOBODY]
    for user in users:
        may = (
            f"%R~{user.pattern} +@read +@connection -@dangerous"
            if user.reads
            else f"~{user.pattern} &{user.pattern} +@all -@admin -@dangerous"
        )
        lines.append(_user(user.name, user.password, may))
    if cluster is not None:
        lines.append(_user("replica", cluster.replica, "+psync +replconf +ping"))
        lines.append(_user("sentinel", cluster.sentinel, _SENTINEL_MAY))
    return "\n".join(lines) + "\n"


def render_sentinel_acl(users: list[KeyUser], cluster: ClusterLogins) -> str:
    """The ACL file of a Sentinel: services may ask for the primary, Sentinels do all."""
    may = "+@connection -@dangerous +sentinel|masters +sentinel|get-master-addr-by-name"
    lines = [_NOBODY, *(_user(user.name, user.password, may) for user in users)]
    lines.append(_user("sentinel", cluster.sentinel, "allchannels +@all"))
    return "\n".join(lines) + "\n"


def _user(name: str, password: str, may: str) -> str:
    digest = hashlib.sha256(password.encode()).hexdigest()
    return f"user {name} on #{digest} {may}"


def durable(acl_file: Path) -> dict[str, str]:
    """The settings of a server that people log in to: appended to disk every second."""
    return {"appendonly": "yes", "appendfsync": "everysec", "aclfile": str(acl_file)}


def render_member(
    data: Path, server: str, acl_file: Path, logins: ClusterLogins, primary: str
) -> str:
    """The configuration of one of several servers, which Sentinels write to.

    `server` and `primary` are `host:port`; all but the primary begin as its replicas.
    """
    host, _, port = server.rpartition(":")
    lines = _settings(data, host, port, durable(acl_file))
    lines |= {"masteruser": "replica", "masterauth": logins.replica}
    if server != primary:
        lines["replicaof"] = primary.replace(":", " ")
    return _lines(lines)


def render_sentinel(
    data: Path, server: str, acl_file: Path, logins: ClusterLogins, primary: str
) -> str:
    """The configuration of a Sentinel, which writes to it what it learns."""
    host, _, port = server.rpartition(":")
    named = f"sentinel {{}} {PRIMARY}"
    return _lines(
        {
            "bind": host,
            "port": port,
            "dir": str(data),
            "daemonize": "no",
            "aclfile": str(acl_file),
            "sentinel sentinel-user": "sentinel",
            "sentinel sentinel-pass": logins.sentinel,
            named.format("monitor"): f"{primary.replace(':', ' ')} {QUORUM}",
            named.format("auth-user"): "sentinel",
            named.format("auth-pass"): logins.sentinel,
            named.format("down-after-milliseconds"): str(DOWN_AFTER_MS),
            named.format("failover-timeout"): str(FAILOVER_MS),
        }
    )


def primary_of(sentinels: Iterable[str]) -> str | None:
    """The primary (`host:port`) that the configurations of Sentinels name: the newest counts."""
    named = [
        (int(epoch[1]) if (epoch := _EPOCH.search(text)) else 0, f"{found[1]}:{found[2]}")
        for text in sentinels
        if (found := _MONITOR.search(text))
    ]
    return max(named)[1] if named else None


def command(program: Path, data: Path, server: str, acl_file: Path) -> list[str]:
    """The command line of a server alone."""
    host, _, port = server.rpartition(":")
    return _command(program, _settings(data, host, port, durable(acl_file)))


def _settings(data: Path, host: str, port: str, more: Mapping[str, str]) -> dict[str, str]:
    where = {"bind": host, "port": port, "dir": str(data)}
    return {**where, "daemonize": "no", "save": "", **more}


def _command(program: Path, settings: Mapping[str, str]) -> list[str]:
    return [
        str(program),
        *(part for key, value in settings.items() for part in (f"--{key}", value)),
    ]


def _lines(settings: Mapping[str, str]) -> str:
    quoted = {"dir", "aclfile", "save"}
    return "".join(
        f"{key} {json.dumps(value) if key in quoted else value}\n"
        for key, value in settings.items()
    )


def bare_command(
    program: Path, data: Path, port: int, options: Mapping[str, str] | None = None
) -> list[str]:
    """The command line without logins and without a file, for tests."""
    return _command(program, _settings(data, LOOPBACK, str(port), options or {}))


async def wait_ready(url: str) -> None:
    """Return when the server answers its user; the caller bounds the time."""
    async with Redis.from_url(url, socket_connect_timeout=1) as client:
        await retry(client.ping, RedisConnectionError, RedisTimeoutError)
