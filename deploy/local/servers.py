"""The servers of one machine: on loopback, with passwords, data under DIR.

Normally one MongoDB, NATS and Redis each. A cluster has three MongoDB, three NATS and two Redis
servers with three Sentinels. The first server of each kind keeps the name and data that it has as a
single server.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from deploy.local import programs
from deploy.local.process import ProcessSpec
from deploy.local.programs import Program
from deploy.platform import keys, mongo_server, redis_server, services
from deploy.platform.admin import wait_ready
from deploy.platform.files import create_private_directory, write_private
from deploy.platform.nats import (
    NatsCluster,
    NatsConfig,
    TlsFiles,
    read_partition_count,
    render_nats_config,
)
from deploy.platform.nats_grants import ADMIN_USER, USERS
from deploy.platform.ports import LOOPBACK, reachable_host
from deploy.platform.redis_server import ClusterPasswords
from deploy.platform.state import Addresses, State, member_name
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
CLUSTER_SIZE = 3
"""Number of members in a cluster."""
REDIS_SERVER_COUNT = 2
"""Number of Redis servers in a cluster; three Sentinels choose the primary."""


def server_port_names(state: State) -> list[str]:
    """Return the names of the servers' ports that the launcher chooses (`mongod`, …)."""
    if not state.is_cluster:
        return [MONGOD, REDIS]
    every = [
        member_name(kind, number)
        for kind in (MONGOD, ROUTE, SENTINEL)
        for number in range(1, CLUSTER_SIZE + 1)
    ]
    others = [
        member_name(kind, number) for kind in (NATS, MQTT) for number in range(2, CLUSTER_SIZE + 1)
    ]
    return [
        *every,
        *others,
        *(member_name(REDIS, number) for number in range(1, REDIS_SERVER_COUNT + 1)),
    ]


@dataclass(frozen=True)
class Server:
    """A server to start, and its readiness check."""

    spec: ProcessSpec
    ready: Callable[[], Awaitable[None]]
    """Returns when the server is ready and set up; the caller limits the time."""


@dataclass(frozen=True)
class ServerPrograms:
    """The server programs of this machine."""

    mongod: Program
    nats: Program
    redis: Program

    @classmethod
    def find(cls) -> "ServerPrograms":
        """Find all three programs; raise `LauncherError` (exit code 2) if one is missing."""
        return cls(
            programs.find_program(programs.MONGOD),
            programs.find_program(programs.NATS),
            programs.find_program(programs.REDIS),
        )


@dataclass(frozen=True)
class NatsListeners:
    """The listen addresses of a nats-server for clients."""

    host: str
    port: int
    mqtt_port: int
    websocket_port: int | None = None
    tls: TlsFiles | None = None

    @property
    def url(self) -> str:
        """Return the address for clients on this machine, without credentials."""
        return f"{'tls' if self.tls else 'nats'}://{reachable_host(self.host)}:{self.port}"

    @property
    def mqtt_url(self) -> str:
        """Return the address for devices on this machine."""
        return f"{'mqtts' if self.tls else 'mqtt'}://{reachable_host(self.host)}:{self.mqtt_port}"

    def build_for_members(self, state: State) -> list["NatsListeners"]:
        """Return the listeners of each cluster member; only the first has a WebSocket."""
        listeners = []
        for number, member_host in enumerate(state.hosts, 1):
            host = self.host if member_host == LOOPBACK else member_host
            if number == 1:
                listeners.append(replace(self, host=host))
                continue
            port, mqtt_port = (state.ports[member_name(kind, number)] for kind in (NATS, MQTT))
            listeners.append(NatsListeners(host, port, mqtt_port, tls=self.tls))
        return listeners


@dataclass(frozen=True)
class ServerContext:
    """Directory, state and environment of the servers."""

    directory: Path
    state: State
    environment: dict[str, str]
    prefixes: Sequence[Sequence[str]] = ()
    """A command prefix for the servers of each member, e.g. to run in a network namespace."""

    def build_spec(
        self, kind: str, number: int, argv: Sequence[str], stage: int, grace: float = 10.0
    ) -> ProcessSpec:
        """Return how to start the `number`th server of a kind."""
        prefix = self.prefixes[number - 1] if self.prefixes else ()
        return ProcessSpec(
            name=member_name(kind, number),
            argv=[*prefix, *argv],
            stage=stage,
            environment=self.environment,
            grace=grace,
        )

    def create_data_directory(self, kind: str, number: int) -> Path:
        """Create the data directory of the `number`th server of a kind."""
        return create_private_directory(self.directory / member_name(kind, number))

    def write_file(self, name: str, content: str) -> Path:
        """Write a file that only its owner can read."""
        path = self.directory / name
        write_private(path, content.encode())
        return path

    def get_or_create_password(self, name: str) -> str:
        """Return a password, created on first use."""
        return self.state.get_or_create_secret(name, keys.new_password)


def prepare_servers(
    server_programs: ServerPrograms,
    context: ServerContext,
    listeners: Sequence[NatsListeners],
    addresses: Addresses,
) -> list[Server]:
    """Write the configuration of all servers; return how to start them.

    `listeners` has the listeners of each NATS server. Clients connect to `addresses`.
    """
    redis = _redis_cluster if context.state.is_cluster else _redis_servers
    return [
        *_mongodb_servers(server_programs.mongod.path, context),
        *_nats_servers(server_programs.nats.path, context, listeners, addresses),
        *redis(server_programs.redis.path, context),
    ]


def _mongodb_servers(program: Path, context: ServerContext) -> list[Server]:
    """Return the MongoDB servers; the first is ready when the replica set is."""
    state = context.state
    key_file = context.write_file(
        "mongo.key", state.get_or_create_secret("mongo_key_file", keys.new_mongo_key)
    )
    members = state.member_addresses(MONGOD)
    users = [*services.database_users(state), services.backup_user(state)]
    set_up = partial(
        mongo_server.set_up_replica_set,
        members,
        context.get_or_create_password(mongo_server.ADMIN_SECRET),
        users,
    )
    servers = []
    for number, address in enumerate(members, 1):
        host, _, port = address.rpartition(":")
        data = context.create_data_directory("mongo", number)
        argv = mongo_server.server_command(
            program, data, host, int(port), key_file, cluster=state.is_cluster
        )
        ready = set_up if number == 1 else partial(mongo_server.wait_ready, address)
        spec = context.build_spec(MONGOD, number, argv, stage=0, grace=30.0)
        servers.append(Server(replace(spec, faults=mongo_server.FAULT_BY_EXIT_CODE), ready))
    return servers


def _nats_servers(
    program: Path, context: ServerContext, listeners: Sequence[NatsListeners], addresses: Addresses
) -> list[Server]:
    state = context.state
    passwords = {user: context.get_or_create_password(f"nats.{user}") for user in USERS}
    seed = state.get_or_create_secret("callout_seed", keys.new_account_seed)
    servers = []
    for number, (listener, address) in enumerate(
        zip(listeners, addresses.split_by_nats_server(), strict=True), 1
    ):
        config = NatsConfig(
            passwords=passwords,
            callout_issuer=keys.account_public_key(seed),
            store_dir=context.create_data_directory(NATS, number),
            server_name=nats_server_name(state, number),
            cluster=_build_nats_cluster(context, number),
            host=listener.host,
            port=listener.port,
            mqtt_port=listener.mqtt_port,
            websocket_port=listener.websocket_port,
            tls=listener.tls,
            partitions=read_partition_count(),
        )
        file = context.write_file(f"{member_name(NATS, number)}.conf", render_nats_config(config))
        spec = context.build_spec(
            NATS, number, [str(program), "-c", str(file)], stage=1, grace=15.0
        )
        servers.append(Server(spec, partial(wait_ready, address, passwords[ADMIN_USER])))
    return servers


def nats_server_name(state: State, number: int) -> str:
    """Return the server name of a nats-server."""
    return f"thingway-{number}" if state.is_cluster else "thingway"


def _build_nats_cluster(context: ServerContext, number: int) -> NatsCluster | None:
    if not context.state.is_cluster:
        return None
    routes = context.state.member_addresses(ROUTE)
    host, _, port = routes[number - 1].rpartition(":")
    return NatsCluster(
        host=host,
        port=int(port),
        routes=tuple(routes),
        password=context.get_or_create_password("nats.route"),
        replicas=CLUSTER_SIZE,
        tag=nats_server_name(context.state, number),
    )


def _redis_servers(program: Path, context: ServerContext) -> list[Server]:
    users = services.redis_users(context.state)
    acl_file = context.write_file("redis.acl", redis_server.render_acl(users))
    (server,) = context.state.member_addresses(REDIS)
    argv = redis_server.server_command(
        program, context.create_data_directory(REDIS, 1), server, acl_file
    )
    url = users[0].url(server)
    return [
        Server(context.build_spec(REDIS, 1, argv, stage=2), partial(redis_server.wait_ready, url))
    ]


def _redis_cluster(program: Path, context: ServerContext) -> list[Server]:
    state = context.state
    logins = ClusterPasswords(
        context.get_or_create_password("redis.replica"),
        context.get_or_create_password("redis.sentinel"),
    )
    users = services.redis_users(state)
    acl = context.write_file("redis.acl", redis_server.render_acl(users, logins))
    sentinel_acl = context.write_file(
        "sentinel.acl", redis_server.render_sentinel_acl(users, logins)
    )
    members, sentinels = (
        state.member_addresses(REDIS, REDIS_SERVER_COUNT),
        state.member_addresses(SENTINEL),
    )
    primary = members[state.redis_primary - 1]
    servers = []
    for number, server in enumerate(members, 1):
        config = redis_server.render_member_config(
            context.create_data_directory(REDIS, number), server, acl, logins, primary
        )
        file = context.write_file(f"{member_name(REDIS, number)}.conf", config)
        ready = partial(redis_server.wait_ready, users[0].url(server))
        servers.append(
            Server(context.build_spec(REDIS, number, [str(program), str(file)], 2), ready)
        )
    ready = partial(_wait_for_primary, users[0].sentinel_url(sentinels))
    for number, server in enumerate(sentinels, 1):
        data = context.create_data_directory(SENTINEL, number)
        config = redis_server.render_sentinel_config(data, server, sentinel_acl, logins, primary)
        file = context.write_file(f"{member_name(SENTINEL, number)}.conf", config)
        argv = [str(program), str(file), "--sentinel"]
        servers.append(Server(context.build_spec(SENTINEL, number, argv, 2), ready))
    return servers


def record_redis_primary(directory: Path, state: State) -> None:
    """Set `redis_primary` from the Sentinels' files, before addresses change.

    Other Redis servers may lack data.
    """
    files = (
        directory / f"{member_name(SENTINEL, number)}.conf" for number in range(1, CLUSTER_SIZE + 1)
    )
    primary = redis_server.read_primary(file.read_text() for file in files if file.exists())
    if primary is not None and primary in (
        addresses := state.member_addresses(REDIS, REDIS_SERVER_COUNT)
    ):
        state.redis_primary = addresses.index(primary) + 1


async def _wait_for_primary(url: str) -> None:
    """Return when the Sentinels name a primary that responds."""
    async with connect_redis(url) as redis:
        await retry(partial(check_redis, redis), RedisError)
