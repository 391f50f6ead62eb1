"""The services and their environments.

A service gets the settings of its settings class that the launcher computes (`_COMPUTED`); the
operator may set all others (`TUNING`).
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
    """A service of the platform: its module, settings and access to stores."""

    name: str
    module: str
    settings: type[ServiceSettings]
    database: str | None = None
    login: str | None = None
    """Its user in MongoDB and Redis; by default its name."""
    redis_pattern: str | None = None
    redis_reads: bool = False
    """Whether it may only read in Redis."""
    vault: str = "secrets_key"
    """Name of the key that encrypts stored secrets."""
    withheld: frozenset[str] = frozenset()
    """Names of computed settings that it does not get."""
    upstream: bool = False
    """Whether the gateway routes requests to it."""
    watched: bool = False
    """Whether the gateway's readiness depends on it without routing requests to it."""
    scaled: bool = False
    """Whether `--workers` multiplies its processes."""

    @property
    def store_user(self) -> str:
        """Return the service's user in MongoDB and Redis."""
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
        upstream=True,
        scaled=True,
    ),
    Service(
        name="device-ingest",
        module="services.device.ingest_main",
        settings=DeviceSettings,
        database="thingway_device",
        login="device",
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
class Endpoints:
    """Addresses and certificates for the services."""

    host: str
    """Listen address of the gateway."""
    port: int
    base_url: str
    nats_url: str
    mqtt_url: str
    public_mqtt_url: str = ""
    """Public MQTT address; empty if the operator sets it."""
    certificate_port: int = 0
    """MQTT port for devices with a certificate; 0 if closed."""
    certificate_nats_port: int = 0
    """NATS port for devices with a certificate; 0 if closed."""
    tls: ServerFiles | None = None
    """Certificate of the gateway; None without TLS."""
    ca_file: str = ""
    """Certificate authority of the servers."""
    device_ca_file: str = ""
    """Certificate authority of the devices."""


def database_users(state: State) -> list[DatabaseUser]:
    """Return the MongoDB users: one per database."""
    users_by_name = {
        user.name: user for service in SERVICES if (user := _database_user(state, service))
    }
    return list(users_by_name.values())


def backup_user(state: State) -> DatabaseUser:
    """Return the MongoDB user that reads all databases."""
    databases = tuple(dict.fromkeys(each.database for each in SERVICES if each.database))
    password = state.secret(f"mongo.{mongo_server.BACKUP}", keys.new_password)
    return DatabaseUser(mongo_server.BACKUP, password, mongo_server.ADMIN, databases)


def exporter_user(state: State) -> DatabaseUser:
    """Return the MongoDB user of a Prometheus exporter, who reads figures but no data."""
    password = state.secret("mongo.exporter", keys.new_password)
    return DatabaseUser("exporter", password, mongo_server.ADMIN, role="clusterMonitor")


def redis_users(state: State) -> list[KeyUser]:
    """Return the Redis users."""
    users_by_name = {
        user.name: user for service in SERVICES if (user := _redis_user(state, service))
    }
    return list(users_by_name.values())


def service_port(service: Service, state: State, endpoints: Endpoints) -> int:
    """Return the port of a service: the public port for the gateway."""
    return endpoints.port if service.name == PUBLIC_SERVICE else state.ports[service.name]


def internal_port_names() -> list[str]:
    """Return the services whose ports the launcher chooses."""
    return [service.name for service in SERVICES if service.name != PUBLIC_SERVICE]


def environment(service: Service, state: State, endpoints: Endpoints) -> dict[str, str]:
    """Return the environment of a service: its own settings only."""
    field_names = {field.name for field in fields(service.settings)} - service.withheld
    values = {
        name: make(service, state, endpoints)
        for name, make in _COMPUTED.items()
        if name in field_names
    }
    return {_variable_name(name): value for name, value in values.items() if value is not None}


def _variable_name(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def _host(service: Service, _: State, endpoints: Endpoints) -> str:
    return endpoints.host if service.name == PUBLIC_SERVICE else LOOPBACK


def _file(service: Service, endpoints: Endpoints, name: str) -> str:
    """Return a TLS file of the gateway; other services listen on loopback without TLS."""
    if service.name != PUBLIC_SERVICE or endpoints.tls is None:
        return ""
    return str(getattr(endpoints.tls, name))


def _nats_password(user: str, state: State) -> str:
    return state.secret(f"nats.{user}", keys.new_password)


def _internal_key(state: State) -> str:
    return state.secret("internal_private_key", keys.new_private_key)


def _mongo_url(service: Service, state: State, _: Endpoints) -> str | None:
    user = _database_user(state, service)
    return user.url(*state.members("mongod")) if user else None


def _redis_url(service: Service, state: State, _: Endpoints) -> str | None:
    user = _redis_user(state, service)
    if user is None:
        return None
    if state.is_cluster:
        return user.sentinel_url(state.members("sentinel"))
    return user.url(*state.members("redis"))


def _addresses(state: State, services: Iterable[Service]) -> str:
    return ",".join(f"{each.name}=http://{LOOPBACK}:{state.ports[each.name]}" for each in services)


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


_COMPUTED: Mapping[str, Callable[[Service, State, Endpoints], str | None]] = {
    "host": _host,
    "port": lambda service, state, endpoints: str(service_port(service, state, endpoints)),
    "nats_url": lambda _, __, endpoints: endpoints.nats_url,
    "nats_user": lambda service, _, __: service.name,
    "nats_password": lambda service, state, _: _nats_password(service.name, state),
    "internal_public_key": lambda _, state, __: keys.public_key(_internal_key(state)),
    "internal_private_key": lambda _, state, __: _internal_key(state),
    "tls_certificate": lambda service, _, endpoints: _file(service, endpoints, "certificate"),
    "tls_key": lambda service, _, endpoints: _file(service, endpoints, "key"),
    "ca_file": lambda _, __, endpoints: endpoints.ca_file,
    "device_ca_file": lambda _, __, endpoints: endpoints.device_ca_file,
    "certificate_port": lambda _, __, endpoints: str(endpoints.certificate_port),
    "certificate_nats_port": lambda _, __, endpoints: str(endpoints.certificate_nats_port),
    "mongo_url": _mongo_url,
    "mongo_database": lambda service, _, __: service.database,
    "redis_url": _redis_url,
    "mqtt_url": lambda _, __, endpoints: endpoints.mqtt_url,
    "public_mqtt_url": lambda _, __, endpoints: endpoints.public_mqtt_url or None,
    "stream_replicas": lambda _, state, __: str(len(state.hosts)),
    "callout_seed": lambda _, state, __: state.secret("callout_seed", keys.new_account_seed),
    "console_client_id": lambda _, state, __: console.client(state)[0],
    "console_client_secret": lambda _, state, __: console.client(state)[1],
    "sys_nats_user": lambda _, __, ___: SYSTEM_USER,
    "sys_nats_password": lambda _, state, __: _nats_password(SYSTEM_USER, state),
    "outside_nats_user": lambda _, __, ___: RELAY,
    "outside_nats_password": lambda _, state, __: _nats_password(RELAY, state),
    "secrets_key": lambda service, state, _: state.secret(service.vault, keys.new_private_key),
    "upstreams": lambda _, state, __: _addresses(
        state, [each for each in SERVICES if each.upstream]
    ),
    "watched": lambda _, state, __: _addresses(state, [each for each in SERVICES if each.watched]),
}
TUNING = frozenset(
    _variable_name(field.name)
    for service in SERVICES
    for field in fields(service.settings)
    if field.name not in _COMPUTED
)
"""Settings that an operator may set in the launcher's environment."""
