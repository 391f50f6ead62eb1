"""The secret files of each container, created from the state.

Compose stores the files of each part in its own volume, Kubernetes in a Secret.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import urlsplit

from deploy.platform import console, keys, services
from deploy.platform.certificates import DEVICE_AUTHORITY, device_authority
from deploy.platform.mongo_server import ADMIN_SECRET
from deploy.platform.nats import (
    NatsCluster,
    NatsConfig,
    ServerFiles,
    configured_partitions,
    render_nats_config,
)
from deploy.platform.nats_grants import ADMIN, USERS
from deploy.platform.redis_server import render_acl
from deploy.platform.services import SERVICES, Endpoints, Service
from deploy.platform.state import Addresses, State

MONGO_PORT, NATS_PORT, MQTT_PORT, REDIS_PORT, SERVICE_PORT = 27017, 4222, 1883, 6379, 8000
WEBSOCKET_PORT, ROUTE_PORT = 8083, 6222
NOT_SECRET = (
    "THINGWAY_HOST",
    "THINGWAY_PORT",
    "THINGWAY_UPSTREAMS",
    "THINGWAY_WATCHED",
    "THINGWAY_TLS_CERTIFICATE",
    "THINGWAY_TLS_KEY",
    "THINGWAY_CA_FILE",
    "THINGWAY_DEVICE_CA_FILE",
    "THINGWAY_CERTIFICATE_PORT",
    "THINGWAY_CERTIFICATE_NATS_PORT",
    "THINGWAY_STREAM_REPLICAS",
)
"""Settings that compose files and chart templates contain."""


@dataclass(frozen=True, kw_only=True)
class PartAddresses:
    """Addresses of the parts of an installation."""

    mongo: str
    """Members of the replica set: `host:port`, separated by commas."""
    mongo_direct: bool
    """Whether the only member has an own address that clients cannot use."""
    redis: str
    """`host:port`."""
    addresses: Addresses
    tls: ServerFiles | None = None
    """Certificate of nats-server, as paths in its container; None without TLS."""
    nats_members: tuple[str, ...] = ()
    """Host names of the nats-servers in a cluster; empty for a single server."""
    nats_server_name: str = "thingway"
    exporters: bool = False
    """Whether Prometheus exporters log in to MongoDB and Redis."""


@dataclass(frozen=True)
class Share:
    """A file for one part."""

    part: str
    name: str
    content: str


def create_shares(state: State, parts: PartAddresses) -> list[Share]:
    """Add missing secrets to `state` and return the files of all parts."""
    state.ports = dict.fromkeys(services.internal_port_names(), SERVICE_PORT)
    state.ports |= {"mongod": MONGO_PORT, "redis": REDIS_PORT}
    return [
        *(Share(each.name, "env", _environment(each, state, parts)) for each in SERVICES),
        Share("mongo", "key", state.secret("mongo_key_file", keys.new_key_file)),
        *_redis(state, parts),
        Share("nats", "nats.conf", _nats(state, parts)),
        Share("gateway", "device-ca.pem", device_authority(state).certificate),
        *_mongo_users(state, parts),
    ]


def bootstrap_state(state: State, whole_state: State, parts: PartAddresses) -> State:
    """Return the state of the bootstrap job: its own, and secrets it may know.

    These are the administrator's password, the console client, which the job prints, and the
    authority of device certificates, for `thingway device certificate`.
    """
    identity, secret = console.client(state)
    device_authority(state)
    whole_state.secrets = {
        f"nats.{ADMIN}": state.secret(f"nats.{ADMIN}", keys.new_password),
        console.CLIENT_ID: identity,
        console.CLIENT_SECRET: secret,
        DEVICE_AUTHORITY: state.secrets[DEVICE_AUTHORITY],
    }
    whole_state.adopt_first_data(state)  # present after a restore
    whole_state.addresses = parts.addresses
    return whole_state


def _environment(service: Service, state: State, parts: PartAddresses) -> str:
    """Return a service's environment with the host names of `parts`."""
    addresses = parts.addresses
    endpoints = Endpoints("", SERVICE_PORT, "", addresses.nats_url, addresses.mqtt_url)
    service_environment = services.environment(service, state, endpoints)
    for name in NOT_SECRET:
        service_environment.pop(name, None)
    if url := service_environment.get("THINGWAY_MONGO_URL"):
        direct = "&directConnection=true" if parts.mongo_direct else ""
        service_environment["THINGWAY_MONGO_URL"] = _replace_hosts(parts.mongo, url) + direct
    if url := service_environment.get("THINGWAY_REDIS_URL"):
        service_environment["THINGWAY_REDIS_URL"] = _replace_hosts(parts.redis, url)
    return _lines(service_environment)


def _replace_hosts(hosts: str, url: str) -> str:
    """Return the URL with other hosts."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{login}@{hosts}").geturl()


def _nats(state: State, parts: PartAddresses) -> str:
    passwords = {user: state.secret(f"nats.{user}", keys.new_password) for user in USERS}
    seed = state.secret("callout_seed", keys.new_account_seed)
    return render_nats_config(
        NatsConfig(
            passwords=passwords,
            callout_issuer=keys.account_public_key(seed),
            store_dir=PurePath("/data"),
            server_name=parts.nats_server_name,
            cluster=_nats_cluster(state, parts),
            host="0.0.0.0",  # noqa: S104 - the containers' network decides what is published
            port=NATS_PORT,
            mqtt_port=MQTT_PORT,
            websocket_port=WEBSOCKET_PORT,
            tls=parts.tls,
            monitor_port=8222,
            partitions=configured_partitions(),
        )
    )


def _nats_cluster(state: State, parts: PartAddresses) -> NatsCluster | None:
    if not parts.nats_members:
        return None
    return NatsCluster(
        host="0.0.0.0",  # noqa: S104
        port=ROUTE_PORT,
        routes=tuple(f"{member}:{ROUTE_PORT}" for member in parts.nats_members),
        password=state.secret("nats.route", keys.new_password),
        replicas=len(parts.nats_members),
    )


def _mongo_users(state: State, parts: PartAddresses) -> Iterator[Share]:
    users = [*services.database_users(state), services.backup_user(state)]
    if parts.exporters:
        exporter = services.exporter_user(state)
        users.append(exporter)
        yield Share("mongo", "exporter", exporter.password)
    passwords = {f"MONGO_{user.name}": user.password for user in users}
    passwords["MONGO_ADMIN"] = state.secret(ADMIN_SECRET, keys.new_password)
    yield Share("mongo-setup", "env", _lines(passwords))


def _redis(state: State, parts: PartAddresses) -> Iterator[Share]:
    exporter = state.secret("redis.exporter", keys.new_password) if parts.exporters else ""
    if exporter:
        yield Share("redis", "exporter", exporter)
    yield Share("redis", "users.acl", render_acl(services.redis_users(state), exporter=exporter))


def _lines(variables: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in variables.items())
