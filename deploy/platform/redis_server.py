"""The embedded Redis-compatible server: a user per service, written every second."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from deploy.platform.ports import LOOPBACK

_PAUSE_SECONDS = 0.03


@dataclass(frozen=True)
class KeyUser:
    """A user of the keys and channels that match one pattern."""

    name: str
    password: str
    pattern: str
    reads: bool = False
    """Only reads; writes nothing and runs no script."""

    def url(self, port: int) -> str:
        """The connection string of this user for an embedded server."""
        return f"redis://{self.name}:{self.password}@{LOOPBACK}:{port}/0"


def render_acl(users: list[KeyUser]) -> str:
    """The ACL file: named users with hashed passwords, nobody else.

    Administration and dangerous commands (`FLUSHALL`, `KEYS`, `CONFIG`) are nobody's.
    """
    lines = ["user default off resetkeys resetchannels -@all"]
    for user in users:
        digest = hashlib.sha256(user.password.encode()).hexdigest()
        may = (
            f"%R~{user.pattern} +@read +@connection -@dangerous"
            if user.reads
            else f"~{user.pattern} &{user.pattern} +@all -@admin -@dangerous"
        )
        lines.append(f"user {user.name} on #{digest} {may}")
    return "\n".join(lines) + "\n"


def command(program: Path, data: Path, port: int, acl_file: Path) -> list[str]:
    """The command line: loopback only, appended to disk every second."""
    durable = {"appendonly": "yes", "appendfsync": "everysec", "aclfile": str(acl_file)}
    return bare_command(program, data, port, durable)


def bare_command(
    program: Path, data: Path, port: int, options: Mapping[str, str] | None = None
) -> list[str]:
    """The command line without logins and without a file, for tests."""
    settings = {
        "bind": LOOPBACK,
        "port": str(port),
        "dir": str(data),
        "daemonize": "no",
        "save": "",
        **(options or {}),
    }
    return [
        str(program),
        *(part for key, value in settings.items() for part in (f"--{key}", value)),
    ]


async def wait_ready(url: str) -> None:
    """Return when the server answers its user; the caller bounds the time."""
    async with Redis.from_url(url, socket_connect_timeout=1) as client:
        while True:
            try:
                await client.ping()
            except (RedisConnectionError, RedisTimeoutError):
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                return
