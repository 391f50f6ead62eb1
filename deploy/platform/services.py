"""The services: one line each, and the environment each of them is given.

A service is given those settings of its settings class that the launcher knows (`_GIVEN`);
all others are the operator's (`TUNING`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields

from deploy.platform import console, keys, mongo_server
from deploy.platform.mongo_server import DatabaseUser
from deploy.platform.nats import ServerFiles
from deploy.platform.nats_grants import RELAY, SYSTEM_USER
from deploy.platform.ports import LOOPBACK
from deploy.platform.redis_server import KeyUser
from deploy.platform.state import State
from libs.common.settings import PREFIX, ServiceSettings
from services.auth.settings import AuthSettings
from services.device.settings import DeviceSettings
from services.gateway.settings import GatewaySettings, RelaySettings
from services.management.settings import ManagementSettings
from services.workflow.settings import WorkflowSettings


@dataclass(frozen=True, kw_only=True)
class Service:
    """A service of the platform: which module it is and what it may reach."""

    name: str
    module: str
    settings: type[ServiceSettings]
    database: str | None = None
    login: str | None = None
    """Its user of MongoDB and Redis, unless that is its name."""
    redis_pattern: str | None = None
    redis_reads: bool = False
    """Whether it only reads there."""
    vault: str = "secrets_key"
    """Name of the key that it keeps secrets of people with."""
    withheld: frozenset[str] = frozenset()
    """Settings that it is not given."""
    upstream: bool = False
    """Whether the gateway routes requests to it."""
    watched: bool = False
    """Whether the gateway is ready only when this is, though it gets no requests."""
    scaled: bool = False
    """Whether `--workers` starts several processes of it."""

    @property
    def store_user(self) -> str:
        """Its user of MongoDB and Redis."""
        return self.login or self.name


SERVICES = (
    Service(
        name="auth",
        module="services.auth",
        settings=AuthSettings,
        database="thingway_auth",
        redis_pattern="*",
        upstream=True,
    ),
    Service(
        name="device",
        module="services.device",
        settings=DeviceSettings,
        database="thingway_device",
        redis_pattern="tw:*",
        upstream=True,
        scaled=True,
    ),
    Service(
        name="device-ingest",
        module="services.device.ingest_main",
        settings=DeviceSettings,
        database="thingway_device",
        login="device",
        redis_pattern="tw:*",
        withheld=frozenset({"sys_nats_user", "sys_nats_password"}),
        watched=True,
    ),
    Service(
        name="management",
        module="services.management",
        settings=ManagementSettings,
        database="thingway_management",
        redis_pattern="tw:*",
        redis_reads=True,
        upstream=True,
    ),
    Service(
        name="workflow",
        module="services.workflow",
        settings=WorkflowSettings,
        database="thingway_workflow",
        vault="flow_secrets_key",
        upstream=True,
        scaled=True,
    ),
    Service(
        name="gateway",
        module="services.gateway",
        settings=GatewaySettings,
        redis_pattern="tw:*",
        scaled=True,
    ),
    Service(
        name="gateway-bus",
        module="services.gateway.relay_main",
        settings=RelaySettings,
        redis_pattern="tw:bus-tenant:*",
        redis_reads=True,
    ),
)
PUBLIC_SERVICE = "gateway"


@dataclass(frozen=True)
class Doors:
    """Addresses that the services are told."""

    host: str
    """Address of the gateway's public door."""
    port: int
    base_url: str
    nats_url: str
    mqtt_url: str
    public_mqtt_url: str = ""
    """Where clients outside reach MQTT; empty: whoever runs the services says it."""
    certificate_port: int = 0
    """Of MQTT for devices with a certificate; 0: none."""
    certificate_nats_port: int = 0
    """Of NATS for them."""
    tls: ServerFiles | None = None
    """What the gateway's doors show; None: they are plain."""
    ca_file: str = ""
    """Authority of the servers that the services connect to."""
    device_ca_file: str = ""
    """Authority of device certificates."""


def database_users(state: State) -> list[DatabaseUser]:
    """The MongoDB users: one per database."""
    found = {user.name: user for one in SERVICES if (user := _database_user(state, one))}
    return list(found.values())


def backup_user(state: State) -> DatabaseUser:
    """The MongoDB user who reads all of them."""
    databases = tuple(dict.fromkeys(one.database for one in SERVICES if one.database))
    password = state.secret(f"mongo.{mongo_server.BACKUP}", keys.new_password)
    return DatabaseUser(mongo_server.BACKUP, password, mongo_server.ADMIN, databases)


def redis_users(state: State) -> list[KeyUser]:
    """The Redis users."""
    found = {user.name: user for service in SERVICES if (user := _redis_user(state, service))}
    return list(found.values())


def port_of(service: Service, state: State, doors: Doors) -> int:
    """The port that a service listens on: the gateway the public one, others their own."""
    return doors.port if service.name == PUBLIC_SERVICE else state.ports[service.name]


def internal_port_names() -> list[str]:
    """The services that listen on a port of the launcher's choice."""
    return [service.name for service in SERVICES if service.name != PUBLIC_SERVICE]


def environment(service: Service, state: State, doors: Doors) -> dict[str, str]:
    """The settings of one service: what it needs and nothing that belongs to another."""
    known = {one.name for one in fields(service.settings)} - service.withheld
    given = {name: make(service, state, doors) for name, make in _GIVEN.items() if name in known}
    return {_variable(name): value for name, value in given.items() if value is not None}


def _variable(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def _host(service: Service, _: State, doors: Doors) -> str:
    return doors.host if service.name == PUBLIC_SERVICE else LOOPBACK


def _file(service: Service, doors: Doors, name: str) -> str:
    """A file of the public listener; those on loopback are plain."""
    if service.name != PUBLIC_SERVICE or doors.tls is None:
        return ""
    return str(getattr(doors.tls, name))


def _nats_password(user: str, state: State) -> str:
    return state.secret(f"nats.{user}", keys.new_password)


def _internal_key(state: State) -> str:
    return state.secret("internal_private_key", keys.new_private_key)


def _mongo_url(service: Service, state: State, _: Doors) -> str | None:
    user = _database_user(state, service)
    return user.url(*state.members("mongod")) if user else None


def _redis_url(service: Service, state: State, _: Doors) -> str | None:
    user = _redis_user(state, service)
    if user is None:
        return None
    if state.is_cluster:
        return user.sentinel_url(state.members("sentinel"))
    return user.url(*state.members("redis"))


def _addresses(state: State, services: Iterable[Service]) -> str:
    return ",".join(f"{one.name}=http://{LOOPBACK}:{state.ports[one.name]}" for one in services)


def _database_user(state: State, service: Service) -> DatabaseUser | None:
    if service.database is None:
        return None
    name = service.store_user
    return DatabaseUser(name, state.secret(f"mongo.{name}", keys.new_password), service.database)


def _redis_user(state: State, service: Service) -> KeyUser | None:
    if service.redis_pattern is None:
        return None
    name = service.store_user
    password = state.secret(f"redis.{name}", keys.new_password)
    return KeyUser(name, password, service.redis_pattern, reads=service.redis_reads)


_GIVEN: Mapping[str, Callable[[Service, State, Doors], str | None]] = {
    "host": _host,
    "port": lambda service, state, doors: str(port_of(service, state, doors)),
    "nats_url": lambda _, __, doors: doors.nats_url,
    "nats_user": lambda service, _, __: service.name,
    "nats_password": lambda service, state, _: _nats_password(service.name, state),
    "internal_public_key": lambda _, state, __: keys.public_key(_internal_key(state)),
    "internal_private_key": lambda _, state, __: _internal_key(state),
    "tls_certificate": lambda service, _, doors: _file(service, doors, "certificate"),
    "tls_key": lambda service, _, doors: _file(service, doors, "key"),
    "ca_file": lambda _, __, doors: doors.ca_file,
    "device_ca_file": lambda _, __, doors: doors.device_ca_file,
    "certificate_port": lambda _, __, doors: str(doors.certificate_port),
    "certificate_nats_port": lambda _, __, doors: str(doors.certificate_nats_port),
    "mongo_url": _mongo_url,
    "mongo_database": lambda service, _, __: service.database,
    "redis_url": _redis_url,
    "mqtt_url": lambda _, __, doors: doors.mqtt_url,
    "public_mqtt_url": lambda _, __, doors: doors.public_mqtt_url or None,
    "stream_replicas": lambda _, state, __: str(len(state.hosts)),
    "callout_seed": lambda _, state, __: state.secret("callout_seed", keys.new_account_seed),
    "console_client_id": lambda _, state, __: console.client(state)[0],
    "console_client_secret": lambda _, state, __: console.client(state)[1],
    "sys_nats_user": lambda _, __, ___: SYSTEM_USER,
    "sys_nats_password": lambda _, state, __: _nats_password(SYSTEM_USER, state),
    "outside_nats_user": lambda _, __, ___: RELAY,
    "outside_nats_password": lambda _, state, __: _nats_password(RELAY, state),
    "secrets_key": lambda service, state, _: state.secret(service.vault, keys.new_private_key),
    "upstreams": lambda _, state, __: _addresses(state, [one for one in SERVICES if one.upstream]),
    "watched": lambda _, state, __: _addresses(state, [one for one in SERVICES if one.watched]),
}
TUNING = frozenset(
    _variable(one.name)
    for service in SERVICES
    for one in fields(service.settings)
    if one.name not in _GIVEN
)
"""Settings that an operator may give to the launcher; addresses and secrets are its own."""
