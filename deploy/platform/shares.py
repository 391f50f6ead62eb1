"""The secret files of each container, created from the state.

Compose stores the files of each part in its own volume, Kubernetes in a Secret.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import urlsplit

from deploy.platform import console, keys, services
from deploy.platform.certificates import DEVICE_AUTHORITY_SECRET, device_authority
from deploy.platform.mongo_server import ADMIN_SECRET
from deploy.platform.nats import (
    NatsCluster,
    NatsConfig,
    TlsFiles,
    read_partition_count,
    render_nats_config,
)
from deploy.platform.nats_grants import ADMIN_USER, USERS
from deploy.platform.redis_server import render_acl
from deploy.platform.services import SERVICES, Endpoints, Service
from deploy.platform.state import Addresses, State

MONGO_PORT, NATS_PORT, MQTT_PORT, REDIS_PORT, SERVICE_PORT = 27017, 4222, 1883, 6379, 8000
WEBSOCKET_PORT, ROUTE_PORT = 8083, 6222
NOT_SECRET_VARIABLES = (
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
"""Variables that compose files and chart templates set, so the secret files do not contain them."""


@dataclass(frozen=True, kw_only=True)
class PartAddresses:
    """Addresses of the parts of an installation."""

    mongo: str
    """Members of the replica set: `host:port`, separated by commas."""
    mongo_direct: bool
    """Whether clients connect to the only member directly, not to the address that it reports."""
    redis: str
    """`host:port`."""
    addresses: Addresses
    tls: TlsFiles | None = None
    """Certificate of nats-server, as paths in its container; None without TLS."""
    nats_members: tuple[str, ...] = ()
    """Host names of the nats-servers in a cluster; empty for a single server."""
    nats_server_name: str = "thingway"
    exporters: bool = False
    """Whether Prometheus exporters log in to MongoDB and Redis."""


@dataclass(frozen=True)
class SecretFile:
    """A file with secrets for one part (container or pod) of an installation."""

    part: str
    name: str
    content: str


def create_secret_files(state: State, parts: PartAddresses) -> list[SecretFile]:
    """Add missing secrets to `state` and return the files of all parts."""
    state.ports = dict.fromkeys(services.internal_service_names(), SERVICE_PORT)
    state.ports |= {"mongod": MONGO_PORT, "redis": REDIS_PORT}
    return [
        *(
            SecretFile(each.name, "env", _render_environment(each, state, parts))
            for each in SERVICES
        ),
        SecretFile(
            "mongo", "key", state.get_or_create_secret("mongo_key_file", keys.new_mongo_key)
        ),
        *_create_redis_files(state, parts),
        SecretFile("nats", "nats.conf", _render_nats(state, parts)),
        SecretFile("gateway", "device-ca.pem", device_authority(state).certificate),
        *_create_mongo_files(state, parts),
    ]


def build_bootstrap_state(state: State, job_state: State, parts: PartAddresses) -> State:
    """Return the bootstrap job's state with the secrets that it needs from `state`.

    These are the administrator's password, the console client, which the job prints, and the
    authority of device certificates, for `thingway device certificate`.
    """
    identity, secret = console.console_client(state)
    device_authority(state)
    job_state.secrets = {
        f"nats.{ADMIN_USER}": state.get_or_create_secret(f"nats.{ADMIN_USER}", keys.new_password),
        console.CLIENT_ID: identity,
        console.CLIENT_SECRET: secret,
        DEVICE_AUTHORITY_SECRET: state.secrets[DEVICE_AUTHORITY_SECRET],
    }
    job_state.adopt_first_data(state)  # present after a restore
    job_state.addresses = parts.addresses
    return job_state


def _render_environment(service: Service, state: State, parts: PartAddresses) -> str:
    """Return the env file of a service, with the host names in `parts`."""
    addresses = parts.addresses
    endpoints = Endpoints("", SERVICE_PORT, "", addresses.nats_url, addresses.mqtt_url)
    service_environment = services.build_environment(service, state, endpoints)
    for name in NOT_SECRET_VARIABLES:
        service_environment.pop(name, None)
    if url := service_environment.get("THINGWAY_MONGO_URL"):
        direct = "&directConnection=true" if parts.mongo_direct else ""
        service_environment["THINGWAY_MONGO_URL"] = _replace_hosts(parts.mongo, url) + direct
    if url := service_environment.get("THINGWAY_REDIS_URL"):
        service_environment["THINGWAY_REDIS_URL"] = _replace_hosts(parts.redis, url)
    return _render_lines(service_environment)


def _replace_hosts(hosts: str, url: str) -> str:
    """Return `url` with `hosts` (`host:port`, with commas) in place of its own."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{login}@{hosts}").geturl()


def _render_nats(state: State, parts: PartAddresses) -> str:
    passwords = {
        user: state.get_or_create_secret(f"nats.{user}", keys.new_password) for user in USERS
    }
    seed = state.get_or_create_secret("callout_seed", keys.new_account_seed)
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
            partitions=read_partition_count(),
        )
    )


def _nats_cluster(state: State, parts: PartAddresses) -> NatsCluster | None:
    if not parts.nats_members:
        return None
    return NatsCluster(
        host="0.0.0.0",  # noqa: S104
        port=ROUTE_PORT,
        routes=tuple(f"{member}:{ROUTE_PORT}" for member in parts.nats_members),
        password=state.get_or_create_secret("nats.route", keys.new_password),
        replicas=len(parts.nats_members),
    )


def _create_mongo_files(state: State, parts: PartAddresses) -> Iterator[SecretFile]:
    users = [*services.database_users(state), services.backup_user(state)]
    if parts.exporters:
        exporter = services.exporter_user(state)
        users.append(exporter)
        yield SecretFile("mongo", "exporter", exporter.password)
    passwords = {f"MONGO_{user.name}": user.password for user in users}
    passwords["MONGO_ADMIN"] = state.get_or_create_secret(ADMIN_SECRET, keys.new_password)
    yield SecretFile("mongo-setup", "env", _render_lines(passwords))


def _create_redis_files(state: State, parts: PartAddresses) -> Iterator[SecretFile]:
    exporter = (
        state.get_or_create_secret("redis.exporter", keys.new_password) if parts.exporters else ""
    )
    if exporter:
        yield SecretFile("redis", "exporter", exporter)
    yield SecretFile(
        "redis", "users.acl", render_acl(services.redis_users(state), exporter=exporter)
    )


def _render_lines(variables: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in variables.items())
