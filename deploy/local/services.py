"""The services: one line each, and the environment each of them is given."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from deploy.local import console, keys
from deploy.local.mongo_server import DatabaseUser
from deploy.local.nats import RELAY, SYSTEM_USER
from deploy.local.ports import LOOPBACK
from deploy.local.redis_server import KeyUser
from deploy.local.state import State


@dataclass(frozen=True, kw_only=True)
class Service:
    """A service of the platform: which module it is and what it may reach."""

    name: str
    module: str
    database: str | None = None
    database_user: str | None = None
    """Defaults to the service's name; `device-ingest` shares that of `device`."""
    redis_pattern: str | None = None
    redis_user: str | None = None
    redis_reads: bool = False
    """Whether it only reads there."""
    mqtt: bool = False
    """Whether it is told where MQTT is."""
    upstream: bool = False
    """Whether the gateway routes requests to it."""
    watched: bool = False
    """Whether the gateway is ready only when this is, though it gets no requests."""
    scaled: bool = False
    """Whether `--workers` starts several processes of it."""
    secrets: tuple[str, ...] = field(default=())
    """Names of further secrets it is given, keys of `_SECRETS`."""


SERVICES = (
    Service(
        name="auth",
        module="services.auth",
        database="thingway_auth",
        redis_pattern="*",
        mqtt=True,
        upstream=True,
        secrets=("callout", "console"),
    ),
    Service(
        name="device",
        module="services.device",
        database="thingway_device",
        redis_pattern="tw:*",
        upstream=True,
        scaled=True,
        secrets=("system",),
    ),
    Service(
        name="device-ingest",
        module="services.device.ingest_main",
        database="thingway_device",
        database_user="device",
        redis_pattern="tw:*",
        redis_user="device",
        watched=True,
    ),
    Service(
        name="management",
        module="services.management",
        database="thingway_management",
        redis_pattern="tw:*",
        redis_reads=True,
        upstream=True,
        secrets=("vault",),
    ),
    Service(
        name="workflow",
        module="services.workflow",
        database="thingway_workflow",
        upstream=True,
        scaled=True,
        secrets=("flow-vault",),
    ),
    Service(
        name="gateway",
        module="services.gateway",
        redis_pattern="tw:*",
        scaled=True,
        secrets=("internal",),
    ),
    Service(
        name="gateway-bus",
        module="services.gateway.relay_main",
        redis_pattern="tw:bus-tenant:*",
        redis_reads=True,
        secrets=("outside",),
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


def database_users(state: State) -> list[DatabaseUser]:
    """The MongoDB users: one per database."""
    found = {user.name: user for service in SERVICES if (user := _database_user(state, service))}
    return list(found.values())


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
    public = service.name == PUBLIC_SERVICE
    internal_key = state.secret("internal_private_key", keys.new_private_key)
    settings = {
        "HOST": doors.host if public else LOOPBACK,
        "PORT": str(port_of(service, state, doors)),
        "PUBLIC_URL": doors.base_url,
        "NATS_URL": doors.nats_url,
        "NATS_USER": service.name,
        "NATS_PASSWORD": state.secret(f"nats.{service.name}", keys.new_password),
        "INTERNAL_PUBLIC_KEY": keys.public_key(internal_key),
        **_stores(service, state),
    }
    if service.mqtt:
        settings["MQTT_URL"] = doors.mqtt_url
    for name in service.secrets:
        settings |= _SECRETS[name](state)
    if public:
        settings["UPSTREAMS"] = _addresses(state, [one for one in SERVICES if one.upstream])
        settings["WATCHED"] = _addresses(state, [one for one in SERVICES if one.watched])
    return {f"THINGWAY_{name}": value for name, value in settings.items()}


def _addresses(state: State, services: Iterable[Service]) -> str:
    return ",".join(f"{one.name}=http://{LOOPBACK}:{state.ports[one.name]}" for one in services)


def _stores(service: Service, state: State) -> dict[str, str]:
    settings = {}
    if database_user := _database_user(state, service):
        settings["MONGO_URL"] = database_user.url(state.ports["mongod"])
        settings["MONGO_DATABASE"] = database_user.database
    if redis_user := _redis_user(state, service):
        settings["REDIS_URL"] = redis_user.url(state.ports["redis"])
    return settings


def _database_user(state: State, service: Service) -> DatabaseUser | None:
    if service.database is None:
        return None
    name = service.database_user or service.name
    return DatabaseUser(name, state.secret(f"mongo.{name}", keys.new_password), service.database)


def _redis_user(state: State, service: Service) -> KeyUser | None:
    if service.redis_pattern is None:
        return None
    name = service.redis_user or service.name
    password = state.secret(f"redis.{name}", keys.new_password)
    return KeyUser(name, password, service.redis_pattern, reads=service.redis_reads)


def _callout(state: State) -> dict[str, str]:
    return {"CALLOUT_SEED": state.secret("callout_seed", keys.new_account_seed)}


def _console(state: State) -> dict[str, str]:
    identity, secret = console.client(state)
    return {"CONSOLE_CLIENT_ID": identity, "CONSOLE_CLIENT_SECRET": secret}


def _internal(state: State) -> dict[str, str]:
    return {"INTERNAL_PRIVATE_KEY": state.secret("internal_private_key", keys.new_private_key)}


def _system(state: State) -> dict[str, str]:
    password = state.secret(f"nats.{SYSTEM_USER}", keys.new_password)
    return {"SYS_NATS_USER": SYSTEM_USER, "SYS_NATS_PASSWORD": password}


def _outside(state: State) -> dict[str, str]:
    password = state.secret(f"nats.{RELAY}", keys.new_password)
    return {"OUTSIDE_NATS_USER": RELAY, "OUTSIDE_NATS_PASSWORD": password}


def _vault(state: State) -> dict[str, str]:
    return {"SECRETS_KEY": state.secret("secrets_key", keys.new_private_key)}


def _flow_vault(state: State) -> dict[str, str]:
    return {"SECRETS_KEY": state.secret("flow_secrets_key", keys.new_private_key)}


_SECRETS: Mapping[str, Callable[[State], dict[str, str]]] = {
    "callout": _callout,
    "console": _console,
    "internal": _internal,
    "outside": _outside,
    "system": _system,
    "vault": _vault,
    "flow-vault": _flow_vault,
}
