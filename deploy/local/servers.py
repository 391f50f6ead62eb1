"""The servers of one machine: on loopback, with logins, data under DIR.

One MongoDB, NATS and Redis each; as a cluster three of MongoDB and NATS, and two of Redis with
three Sentinels. The first of each keeps the names and the data of one alone.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from deploy.local import programs
from deploy.local.process import Spec
from deploy.local.programs import Program
from deploy.platform import keys, mongo_server, redis_server, services
from deploy.platform.admin import wait_ready
from deploy.platform.files import make_private_directory, write_private
from deploy.platform.nats import (
    NatsCluster,
    NatsConfig,
    ServerFiles,
    chosen_partitions,
    render_nats_config,
)
from deploy.platform.nats_grants import ADMIN, USERS
from deploy.platform.ports import LOOPBACK, reachable
from deploy.platform.redis_server import ClusterLogins
from deploy.platform.state import Addresses, State, member
from libs.common.jobs import retry
from libs.common.store.redis import RedisError, check_redis, connect_redis

MONGOD, NATS, MQTT, ROUTE, REDIS, SENTINEL = (
    "mongod",
    "nats",
    "mqtt",
    "nats-route",
    "redis",
    "sentinel",
)
CLUSTER = 3
"""Members of a cluster."""
REDISES = 2
"""Of them, those with a Redis: Sentinels, three, decide which one is the primary."""


def internal_ports(state: State) -> list[str]:
    """The names of the ports that are chosen for the servers."""
    if not state.is_cluster:
        return [MONGOD, REDIS]
    every = [
        member(kind, number)
        for kind in (MONGOD, ROUTE, SENTINEL)
        for number in range(1, CLUSTER + 1)
    ]
    others = [member(kind, number) for kind in (NATS, MQTT) for number in range(2, CLUSTER + 1)]
    return [*every, *others, *(member(REDIS, number) for number in range(1, REDISES + 1))]


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
    """Where a NATS server listens for services, applications and devices."""

    host: str
    port: int
    mqtt_port: int
    websocket_port: int | None = None
    tls: ServerFiles | None = None

    @property
    def url(self) -> str:
        """The address for clients on this machine, without credentials."""
        return f"{'tls' if self.tls else 'nats'}://{reachable(self.host)}:{self.port}"

    @property
    def mqtt_url(self) -> str:
        """The address for devices on this machine."""
        return f"{'mqtts' if self.tls else 'mqtt'}://{reachable(self.host)}:{self.mqtt_port}"

    def of_members(self, state: State) -> list["NatsDoors"]:
        """These, and those of the other members of a cluster, which have no WebSocket."""
        doors = []
        for number, place in enumerate(state.hosts, 1):
            host = self.host if place == LOOPBACK else place
            if number == 1:
                doors.append(replace(self, host=host))
                continue
            port, mqtt_port = (state.ports[member(kind, number)] for kind in (NATS, MQTT))
            doors.append(NatsDoors(host, port, mqtt_port, tls=self.tls))
        return doors


@dataclass(frozen=True)
class Ground:
    """What the servers stand on."""

    directory: Path
    state: State
    environment: dict[str, str]
    inside: Sequence[Sequence[str]] = ()
    """A command for each member of a cluster that runs its servers, e.g. in a network of its
    own; none by default."""

    def spec(
        self, kind: str, number: int, argv: Sequence[str], stage: int, grace: float = 10.0
    ) -> Spec:
        """How to start the `number`th server of a kind."""
        inside = self.inside[number - 1] if self.inside else ()
        return Spec(
            name=member(kind, number),
            argv=[*inside, *argv],
            stage=stage,
            environment=self.environment,
            grace=grace,
        )

    def private(self, kind: str, number: int) -> Path:
        """The data directory of the `number`th server of a kind."""
        return make_private_directory(self.directory / member(kind, number))

    def write(self, name: str, content: str) -> Path:
        """Write a file that only the owner reads."""
        path = self.directory / name
        write_private(path, content.encode())
        return path

    def secret(self, name: str) -> str:
        """A password, made when it is first asked for."""
        return self.state.secret(name, keys.new_password)


def embedded(
    found: Programs, ground: Ground, doors: Sequence[NatsDoors], addresses: Addresses
) -> list[Server]:
    """Write the servers' configurations and describe how to start them.

    `doors` are those of each NATS server, and `addresses` where they are found.
    """
    redis = _redis_cluster if ground.state.is_cluster else _redis
    return [
        *_mongods(found.mongod.path, ground),
        *_nats(found.nats.path, ground, doors, addresses),
        *redis(found.redis.path, ground),
    ]


def _mongods(program: Path, ground: Ground) -> list[Server]:
    """The first is ready when the replica set is."""
    state = ground.state
    key_file = ground.write("mongo.key", state.secret("mongo_key_file", keys.new_key_file))
    members = state.members(MONGOD)
    users = [*services.database_users(state), services.backup_user(state)]
    set_up = partial(mongo_server.set_up, members, ground.secret("mongo.admin"), users)
    servers = []
    for number, address in enumerate(members, 1):
        host, _, port = address.rpartition(":")
        data = ground.private("mongo", number)
        argv = mongo_server.command(
            program, data, host, int(port), key_file, cluster=state.is_cluster
        )
        ready = set_up if number == 1 else partial(mongo_server.wait_ready, address)
        servers.append(Server(ground.spec(MONGOD, number, argv, stage=0, grace=30.0), ready))
    return servers


def _nats(
    program: Path, ground: Ground, doors: Sequence[NatsDoors], addresses: Addresses
) -> list[Server]:
    state = ground.state
    passwords = {user: ground.secret(f"nats.{user}") for user in USERS}
    seed = state.secret("callout_seed", keys.new_account_seed)
    servers = []
    for number, (door, own) in enumerate(zip(doors, addresses.apart(), strict=True), 1):
        config = NatsConfig(
            passwords=passwords,
            callout_issuer=keys.account_public_key(seed),
            store_dir=ground.private(NATS, number),
            server_name=nats_name(state, number),
            cluster=_route(ground, number),
            host=door.host,
            port=door.port,
            mqtt_port=door.mqtt_port,
            websocket_port=door.websocket_port,
            tls=door.tls,
            partitions=chosen_partitions(),
        )
        file = ground.write(f"{member(NATS, number)}.conf", render_nats_config(config))
        spec = ground.spec(NATS, number, [str(program), "-c", str(file)], stage=1, grace=15.0)
        servers.append(Server(spec, partial(wait_ready, own, passwords[ADMIN])))
    return servers


def nats_name(state: State, number: int) -> str:
    """What a nats-server calls itself."""
    return f"thingway-{number}" if state.is_cluster else "thingway"


def _route(ground: Ground, number: int) -> NatsCluster | None:
    if not ground.state.is_cluster:
        return None
    routes = ground.state.members(ROUTE)
    host, _, port = routes[number - 1].rpartition(":")
    return NatsCluster(
        host=host,
        port=int(port),
        routes=tuple(routes),
        password=ground.secret("nats.route"),
        replicas=CLUSTER,
        tag=nats_name(ground.state, number),
    )


def _redis(program: Path, ground: Ground) -> list[Server]:
    users = services.redis_users(ground.state)
    acl_file = ground.write("redis.acl", redis_server.render_acl(users))
    (server,) = ground.state.members(REDIS)
    argv = redis_server.command(program, ground.private(REDIS, 1), server, acl_file)
    url = users[0].url(server)
    return [Server(ground.spec(REDIS, 1, argv, stage=2), partial(redis_server.wait_ready, url))]


def _redis_cluster(program: Path, ground: Ground) -> list[Server]:
    state = ground.state
    logins = ClusterLogins(ground.secret("redis.replica"), ground.secret("redis.sentinel"))
    users = services.redis_users(state)
    acl = ground.write("redis.acl", redis_server.render_acl(users, logins))
    own = ground.write("sentinel.acl", redis_server.render_sentinel_acl(users, logins))
    members, sentinels = state.members(REDIS, REDISES), state.members(SENTINEL)
    primary = members[state.redis_primary - 1]
    servers = []
    for number, server in enumerate(members, 1):
        config = redis_server.render_member(
            ground.private(REDIS, number), server, acl, logins, primary
        )
        file = ground.write(f"{member(REDIS, number)}.conf", config)
        ready = partial(redis_server.wait_ready, users[0].url(server))
        servers.append(Server(ground.spec(REDIS, number, [str(program), str(file)], 2), ready))
    ready = partial(_until_primary, users[0].sentinel_url(sentinels))
    for number, server in enumerate(sentinels, 1):
        data = ground.private(SENTINEL, number)
        config = redis_server.render_sentinel(data, server, own, logins, primary)
        file = ground.write(f"{member(SENTINEL, number)}.conf", config)
        argv = [str(program), str(file), "--sentinel"]
        servers.append(Server(ground.spec(SENTINEL, number, argv, 2), ready))
    return servers


def remember_primary(directory: Path, state: State) -> None:
    """Note which Redis was the primary, before addresses change: another has not all data."""
    files = (directory / f"{member(SENTINEL, number)}.conf" for number in range(1, CLUSTER + 1))
    primary = redis_server.primary_of(file.read_text() for file in files if file.exists())
    if primary is not None and primary in (known := state.members(REDIS, REDISES)):
        state.redis_primary = known.index(primary) + 1


async def _until_primary(url: str) -> None:
    """Return when Sentinels name a primary that answers."""
    async with connect_redis(url) as redis:
        await retry(partial(check_redis, redis), RedisError)
