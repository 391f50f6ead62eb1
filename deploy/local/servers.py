"""The three servers of one machine: on loopback, with logins, data under DIR."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.local import programs
from deploy.local.process import Spec
from deploy.local.programs import Program
from deploy.platform import keys, mongo_server, redis_server, services
from deploy.platform.admin import wait_ready
from deploy.platform.files import make_private_directory, write_private
from deploy.platform.nats import ADMIN, USERS, NatsConfig, ServerFiles, render_nats_config
from deploy.platform.state import Addresses, State

INTERNAL_PORTS = ("mongod", "redis")
NATS = "nats"


@dataclass(frozen=True)
class Server:
    """A server to start, and how to tell that it is ready."""

    spec: Spec
    ready: Callable[[], Awaitable[None]]
    """Returns when it serves and is set up; the caller bounds the time."""


@dataclass(frozen=True)
class Programs:
    """The server programs of this machine."""

    mongod: Program
    nats: Program
    redis: Program

    @classmethod
    def find(cls) -> "Programs":
        """Find all three. Raises `LauncherError` (exit code 2)."""
        return cls(
            programs.find(programs.MONGOD),
            programs.find(programs.NATS),
            programs.find(programs.REDIS),
        )


@dataclass(frozen=True)
class NatsDoors:
    """Where NATS listens for services, applications and devices."""

    host: str
    port: int
    mqtt_port: int
    websocket_port: int | None = None
    tls: ServerFiles | None = None


def embedded(
    found: Programs,
    directory: Path,
    state: State,
    doors: NatsDoors,
    addresses: Addresses,
    base: dict[str, str],
) -> list[Server]:
    """Write the servers' configurations and describe how to start them.

    `addresses` is where these doors are found.
    """
    return [
        _mongod(found.mongod.path, directory, state, base),
        _nats(found.nats.path, directory, state, doors, addresses, base),
        _redis(found.redis.path, directory, state, base),
    ]


def _mongod(program: Path, directory: Path, state: State, base: dict[str, str]) -> Server:
    data = make_private_directory(directory / "mongo")
    key_file = directory / "mongo.key"
    write_private(key_file, state.secret("mongo_key_file", keys.new_key_file).encode())
    port = state.ports["mongod"]
    admin_password = state.secret("mongo.admin", keys.new_password)
    users = [*services.database_users(state), services.backup_user(state)]
    spec = Spec(
        name="mongod",
        argv=mongo_server.command(program, data, port, key_file),
        stage=0,
        environment=base,
        grace=30.0,
    )
    return Server(spec, lambda: mongo_server.set_up(port, admin_password, users))


def _nats(
    program: Path,
    directory: Path,
    state: State,
    doors: NatsDoors,
    addresses: Addresses,
    base: dict[str, str],
) -> Server:
    passwords = {user: state.secret(f"nats.{user}", keys.new_password) for user in USERS}
    seed = state.secret("callout_seed", keys.new_account_seed)
    config = NatsConfig(
        passwords=passwords,
        callout_issuer=keys.account_public_key(seed),
        store_dir=make_private_directory(directory / "nats"),
        host=doors.host,
        port=doors.port,
        mqtt_port=doors.mqtt_port,
        websocket_port=doors.websocket_port,
        tls=doors.tls,
    )
    file = directory / "nats.conf"
    write_private(file, render_nats_config(config).encode())
    spec = Spec(
        name=NATS, argv=[str(program), "-c", str(file)], stage=1, environment=base, grace=15.0
    )
    return Server(spec, lambda: wait_ready(addresses, passwords[ADMIN]))


def _redis(program: Path, directory: Path, state: State, base: dict[str, str]) -> Server:
    data = make_private_directory(directory / "redis")
    users = services.redis_users(state)
    acl_file = directory / "redis.acl"
    write_private(acl_file, redis_server.render_acl(users).encode())
    port = state.ports["redis"]
    spec = Spec(
        name="redis",
        argv=redis_server.command(program, data, port, acl_file),
        stage=2,
        environment=base,
    )
    return Server(spec, lambda: redis_server.wait_ready(users[0].url(port)))
