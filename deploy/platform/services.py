"""The services and their environments.

A service gets the settings of its settings class that the launcher computes (`_COMPUTED_SETTINGS`);
the operator may set all others (`TUNABLE_VARIABLES`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields

from deploy.platform import console, keys, mongo_server
from deploy.platform.mongo_server import DatabaseUser
from deploy.platform.nats import TlsFiles
from deploy.platform.nats_grants import RELAY_USER, SYSTEM_USER
from deploy.platform.ports import LOOPBACK
from deploy.platform.redis_server import RedisUser
from deploy.platform.state import State
from libs.common.settings import VARIABLE_PREFIX, ServiceSettings
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
    """Its user name in MongoDB and Redis; by default the service's name."""
    redis_pattern: str | None = None
    redis_reads: bool = False
    """Whether it may only read in Redis."""
    vault: str = "secrets_key"
    """Name of the secret in the state whose key encrypts the service's stored secrets."""
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
    tls: TlsFiles | None = None
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
    password = state.get_or_create_secret(f"mongo.{mongo_server.BACKUP_USER}", keys.new_password)
    return DatabaseUser(mongo_server.BACKUP_USER, password, mongo_server.ADMIN_USER, databases)


def exporter_user(state: State) -> DatabaseUser:
    """Return the MongoDB user of a Prometheus exporter, who reads figures but no data."""
    password = state.get_or_create_secret("mongo.exporter", keys.new_password)
    return DatabaseUser("exporter", password, mongo_server.ADMIN_USER, role="clusterMonitor")


def redis_users(state: State) -> list[RedisUser]:
    """Return the Redis users."""
    users_by_name = {
        user.name: user for service in SERVICES if (user := _redis_user(state, service))
    }
    return list(users_by_name.values())


def service_port(service: Service, state: State, endpoints: Endpoints) -> int:
    """Return the port of a service: the public port for the gateway."""
    return endpoints.port if service.name == PUBLIC_SERVICE else state.ports[service.name]


def internal_service_names() -> list[str]:
    """Return the names of the services whose ports the launcher chooses."""
    return [service.name for service in SERVICES if service.name != PUBLIC_SERVICE]


def build_environment(service: Service, state: State, endpoints: Endpoints) -> dict[str, str]:
    """Return the environment variables that the launcher computes for a service."""
    field_names = {field.name for field in fields(service.settings)} - service.withheld
    values = {
        name: make(service, state, endpoints)
        for name, make in _COMPUTED_SETTINGS.items()
        if name in field_names
    }
    return {_variable_name(name): value for name, value in values.items() if value is not None}


def _variable_name(name: str) -> str:
    return f"{VARIABLE_PREFIX}{name.upper()}"


def _listen_host(service: Service, _: State, endpoints: Endpoints) -> str:
    return endpoints.host if service.name == PUBLIC_SERVICE else LOOPBACK


def _tls_file(service: Service, endpoints: Endpoints, name: str) -> str:
    """Return the gateway's certificate or key file (`name`); empty for other services."""
    if service.name != PUBLIC_SERVICE or endpoints.tls is None:
        return ""
    return str(getattr(endpoints.tls, name))


def _nats_password(user: str, state: State) -> str:
    return state.get_or_create_secret(f"nats.{user}", keys.new_password)


def _internal_key(state: State) -> str:
    return state.get_or_create_secret("internal_private_key", keys.new_private_key)


def _mongo_url(service: Service, state: State, _: Endpoints) -> str | None:
    user = _database_user(state, service)
    return user.url(*state.member_addresses("mongod")) if user else None


def _redis_url(service: Service, state: State, _: Endpoints) -> str | None:
    user = _redis_user(state, service)
    if user is None:
        return None
    if state.is_cluster:
        return user.sentinel_url(state.member_addresses("sentinel"))
    return user.url(*state.member_addresses("redis"))


def _format_addresses(state: State, services: Iterable[Service]) -> str:
    return ",".join(f"{each.name}=http://{LOOPBACK}:{state.ports[each.name]}" for each in services)


def _database_user(state: State, service: Service) -> DatabaseUser | None:
    if service.database is None:
        return None
    name = service.store_user
    return DatabaseUser(
        name, state.get_or_create_secret(f"mongo.{name}", keys.new_password), service.database
    )


def _redis_user(state: State, service: Service) -> RedisUser | None:
    if service.redis_pattern is None:
        return None
    name = service.store_user
    password = state.get_or_create_secret(f"redis.{name}", keys.new_password)
    return RedisUser(name, password, service.redis_pattern, reads=service.redis_reads)


_COMPUTED_SETTINGS: Mapping[str, Callable[[Service, State, Endpoints], str | None]] = {
    "host": _listen_host,
    "port": lambda service, state, endpoints: str(service_port(service, state, endpoints)),
    "nats_url": lambda _, __, endpoints: endpoints.nats_url,
    "nats_user": lambda service, _, __: service.name,
    "nats_password": lambda service, state, _: _nats_password(service.name, state),
    "internal_public_key": lambda _, state, __: keys.public_key(_internal_key(state)),
    "internal_private_key": lambda _, state, __: _internal_key(state),
    "tls_certificate": lambda service, _, endpoints: _tls_file(service, endpoints, "certificate"),
    "tls_key": lambda service, _, endpoints: _tls_file(service, endpoints, "key"),
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
    "callout_seed": lambda _, state, __: state.get_or_create_secret(
        "callout_seed", keys.new_account_seed
    ),
    "console_client_id": lambda _, state, __: console.console_client(state)[0],
    "console_client_secret": lambda _, state, __: console.console_client(state)[1],
    "sys_nats_user": lambda _, __, ___: SYSTEM_USER,
    "sys_nats_password": lambda _, state, __: _nats_password(SYSTEM_USER, state),
    "outside_nats_user": lambda _, __, ___: RELAY_USER,
    "outside_nats_password": lambda _, state, __: _nats_password(RELAY_USER, state),
    "secrets_key": lambda service, state, _: state.get_or_create_secret(
        service.vault, keys.new_private_key
    ),
    "upstreams": lambda _, state, __: _format_addresses(
        state, [each for each in SERVICES if each.upstream]
    ),
    "watched": lambda _, state, __: _format_addresses(
        state, [each for each in SERVICES if each.watched]
    ),
}
TUNABLE_VARIABLES = frozenset(
    _variable_name(field.name)
    for service in SERVICES
    for field in fields(service.settings)
    if field.name not in _COMPUTED_SETTINGS
)
"""Variables with settings of services that an operator may set for the launcher."""
