"""The configuration of nats-server for launcher, compose and Kubernetes.

It has three accounts (docs/decisions/0020). `THINGWAY` contains JetStream, the services, and the
devices that use MQTT, which can set neither reply subjects nor headers. `OUTSIDE` contains all
other external connections and has no JetStream: their messages reach only `gateway-bus`, which
forwards allowed messages under `relay.`. `SYS` contains the user that observes and closes
connections, and the user that removes a server from a cluster.

The services' users (`nats_grants`) are listed in `auth_users`, so they never wait for the auth
service. All other connections are checked by the auth callout, which `auth` answers inside
`THINGWAY`.

Options: https://docs.nats.io/running-a-nats-service/configuration.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from deploy.platform.errors import Exit, LauncherError
from deploy.platform.nats_grants import (
    ADMIN_USER,
    BACKUP_USER,
    GRANT_BY_USER,
    RELAY_USER,
    SERVICE_USERS,
    SYSTEM_ADMIN_USER,
    SYSTEM_USER,
    USERS,
    Grant,
)
from libs.common.bus.accounts import (
    DISABLED_API_TARGET,
    EXTERNAL_ACCOUNT,
    MAX_PULL_SECONDS,
    MAX_SUBSCRIPTIONS_PER_EXTERNAL_CONNECTION,
    PLATFORM_ACCOUNT,
    PULL_SUBJECT,
    RELAYED_SUBJECTS,
    relay_subject,
)
from libs.common.bus.streams import SESSION_DAYS, PartitionCount
from libs.common.bus.subjects import partitioned_uplink_subject, uplink_subject
from libs.common.settings import SettingsInvalid, load_settings

SYSTEM_ACCOUNT = "SYS"
ROUTE_USER = "route"
"""The user as which the servers of a cluster log in to each other."""

MAX_SERVICE_SUBSCRIPTIONS = 20_000
"""Maximum subscriptions per connection in `THINGWAY`; a service has one per pending call.

nats-server ignores limits in the reply of an auth callout. Therefore the presence tracker closes
MQTT connections with more than `MAX_MQTT_SUBSCRIPTIONS`.
"""

_HANDSHAKE_SECONDS = 10
"""TLS handshake timeout; the default of 2 s is too short when many devices connect at once."""
_CIPHERS = [
    f"TLS_ECDHE_{key}_WITH_{cipher}"
    for cipher in ("AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256", "AES_128_GCM_SHA256")
    for key in ("ECDSA", "RSA")
]
"""The cipher suites for TLS 1.2; by default, nats-server also accepts CBC and SHA-1. Same as in
`libs/common/tls.py`."""
_ENVIRONMENT_REFERENCE = re.compile(r"\$[A-Z][A-Z0-9_]*")


_EXPORTED_SUBJECTS = ("event.>", "thing.*.down.>")
"""Subjects of `THINGWAY` to which the callout may allow subscriptions from `OUTSIDE`."""
_INTEGRATION_REQUEST_SUBJECTS = "rpc.integration.*.*"
"""Requests of services to integrations, which connect to `OUTSIDE`."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A server's certificate chain and private key in PEM files."""

    certificate: PurePath
    key: PurePath


@dataclass(frozen=True)
class _PartitionSettings:
    uplink_partitions: PartitionCount = 1


def read_partition_count() -> int:
    """Return the number of partitions that the operator set in the environment.

    nats-server and `device-ingest` use it. Raises `LauncherError` for an invalid number.
    """
    try:
        return load_settings(_PartitionSettings).uplink_partitions
    except SettingsInvalid as error:
        raise LauncherError(str(error), Exit.CANNOT_START) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsCluster:
    """Addresses and credentials of a cluster of nats-servers."""

    host: str
    port: int
    routes: tuple[str, ...]
    """`host:port` of the members; this server may be included."""
    password: str
    """Shared password of the members; it is part of URLs, so it cannot refer to the environment."""
    replicas: int = 3
    """Replicas of the streams that nats-server creates for MQTT."""
    tag: str = ""
    """Placement tag of this server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsConfig:
    """The variable parts of a nats-server configuration."""

    passwords: Mapping[str, str]
    """A password for each of `USERS`, or a reference to the environment (`$NATS_AUTH_PASSWORD`).

    The value of such a variable must not look like a number.
    """
    callout_issuer: str
    """Public account key (`A…`) of the seed that signs the auth service's replies."""
    store_dir: PurePath
    server_name: str = "thingway"
    """Unique and permanent in a cluster, which assigns streams to servers by name."""
    cluster: NatsCluster | None = None
    host: str = "127.0.0.1"
    port: int = 4222
    mqtt_port: int = 1883
    websocket_port: int | None = None
    """Port for MQTT (at `/mqtt`) and NATS over WebSocket; None if closed."""
    tls: TlsFiles | None = None
    """If set, all listeners require TLS; SIGHUP reloads the files."""
    monitor_port: int | None = None
    """HTTP monitoring (`/healthz`, `/varz`) without authentication; off by default."""
    max_payload: int = 1024 * 1024
    """Maximum bytes of a message, also over MQTT; larger messages disconnect the client."""
    partitions: PartitionCount = 1
    """Number of streams for device messages, split by SN; 1 means only `UPLINK`.

    Raise the number in `device-ingest` first and here second; lower it in the reverse order.
    """
    sync_interval: str = "100ms"
    """Acknowledged messages of this period may be lost in a power cut (`always`: none)."""
    max_file_store: int = 1024**4
    """Bytes that streams may reserve.

    The default, 75 % of the space free at the start, is too small for the limits of our streams on
    disks below 24 GB.
    """
    auth_timeout: float = 5.0
    """Timeout of the auth callout in seconds."""


def render_nats_config(config: NatsConfig) -> str:
    """Return the configuration file (keep it at mode 0600: it contains passwords).

    Raises `ValueError` if a password is missing.
    """
    missing = [user for user in USERS if not config.passwords.get(user)]
    if missing:
        raise ValueError(f"no password for the NATS users {', '.join(missing)}")
    users = "".join(
        _render_user(name, config) for name in (*SERVICE_USERS, ADMIN_USER, BACKUP_USER)
    )
    monitor = (
        "" if config.monitor_port is None else _render_listener("http", config, config.monitor_port)
    )
    return f"""\
server_name: {_quote_value(config.server_name)}
{_render_listener("listen", config, config.port)}{monitor}max_payload: {config.max_payload}
{_render_tls(config)}{_render_websocket(config)}
jetstream {{
  store_dir: {_quote_value(str(config.store_dir))}
  sync_interval: {_quote_value(config.sync_interval)}
  max_file_store: {config.max_file_store}
}}

mqtt {{
  {_render_listener("listen", config, config.mqtt_port)}{_render_tls(config)}\
  # Per QoS 1 subscription; `down/#` counts twice, and a session is limited to 65535.
  max_ack_pending: 100
  # Resend a QoS 1 command after this time without acknowledgement.
  ack_wait: "10s"
  # nats-server sends PUBCOMP even if it could not store the message.
  reject_qos2_publish: true
  downgrade_qos2_subscribe: true
  # The lifetime of a session in `$MQTT_sess`.
  consumer_inactive_threshold: "{SESSION_DAYS * 24}h"
{_render_mqtt_replicas(config.cluster)}}}
{_render_cluster(config.cluster)}
system_account: {SYSTEM_ACCOUNT}

authorization {{
  timeout: {config.auth_timeout}
  auth_callout {{
    issuer: {_quote_value(config.callout_issuer)}
    account: {PLATFORM_ACCOUNT}
    auth_users: {_render_list(USERS)}
  }}
}}

accounts {{
  {PLATFORM_ACCOUNT} {{
    jetstream: enabled
    limits {{ max_subscriptions: {MAX_SERVICE_SUBSCRIPTIONS} }}
{_render_mappings(config.partitions)}    users: [
{users}    ]
    exports: [
{_render_lines(_render_exports())}    ]
    imports: [
      {{ service: {{ account: {EXTERNAL_ACCOUNT}, subject: "{_INTEGRATION_REQUEST_SUBJECTS}" }} }}
    ]
  }}
  {EXTERNAL_ACCOUNT} {{
    limits {{ max_subscriptions: {MAX_SUBSCRIPTIONS_PER_EXTERNAL_CONNECTION} }}
    users: [
{_render_user(RELAY_USER, config)}    ]
    exports: [
      {{ service: "{_INTEGRATION_REQUEST_SUBJECTS}", accounts: [{PLATFORM_ACCOUNT}] }}
    ]
    imports: [
{_render_lines(_render_imports())}    ]
  }}
  {SYSTEM_ACCOUNT} {{
    users: [
{_render_user(SYSTEM_USER, config)}{_render_user(SYSTEM_ADMIN_USER, config)}    ]
  }}
}}
"""


def _render_cluster(cluster: NatsCluster | None) -> str:
    """Return the cluster section; members are not advertised to clients."""
    if cluster is None:
        return ""
    login = f"{ROUTE_USER}:{cluster.password}@"
    tags = f"\nserver_tags: {_render_list([cluster.tag])}\n" if cluster.tag else ""
    return f"""{tags}
cluster {{
  name: thingway
  listen: {_quote_value(f"{cluster.host}:{cluster.port}")}
  no_advertise: true
  authorization {{ user: {ROUTE_USER}, password: {_quote_value(cluster.password)}, timeout: 5 }}
  routes: {_render_list(f"nats://{login}{route}" for route in cluster.routes)}
}}
# Lame duck mode before a planned stop moves clients to other members gradually.
lame_duck_grace_period: "5s"
lame_duck_duration: "30s"
"""


def _render_mqtt_replicas(cluster: NatsCluster | None) -> str:
    return "" if cluster is None else f"  stream_replicas: {cluster.replicas}\n"


def _quote_value(text: str) -> str:
    """Return `text` in quotes, unless it refers to the environment."""
    return text if _ENVIRONMENT_REFERENCE.fullmatch(text) else json.dumps(text)


def _render_mappings(partitions: int) -> str:
    if partitions == 1:
        return ""
    chosen = f"{{{{partition({partitions},1)}}}}"
    to = partitioned_uplink_subject("{{wildcard(1)}}", "{{wildcard(2)}}", chosen)
    return f"    mappings: {{ {_quote_value(uplink_subject('*', '*'))}: {_quote_value(to)} }}\n"


def _render_list(texts: Iterable[str]) -> str:
    return json.dumps(list(texts))


def _render_listener(key: str, config: NatsConfig, port: int) -> str:
    return f"{key}: {_quote_value(f'{config.host}:{port}')}\n"


def _render_tls(config: NatsConfig) -> str:
    if config.tls is None:
        return ""
    files = config.tls
    return (
        f"tls {{ cert_file: {_quote_value(str(files.certificate))}, "
        f"key_file: {_quote_value(str(files.key))}, "
        f"cipher_suites: {_render_list(_CIPHERS)}, timeout: {_HANDSHAKE_SECONDS} }}\n"
    )


def _render_websocket(config: NatsConfig) -> str:
    if config.websocket_port is None:
        return ""
    security = _render_tls(config) or "no_tls: true\n"
    return (
        f"websocket {{ {_render_listener('listen', config, config.websocket_port)}  {security}}}\n"
    )


def _render_user(name: str, config: NatsConfig) -> str:
    password = _quote_value(config.passwords[name])
    permissions = _render_permissions(GRANT_BY_USER[name]) if name in GRANT_BY_USER else ""
    return f"      {{ user: {name}, password: {password}{permissions} }}\n"


def _render_permissions(grant: Grant) -> str:
    answers = ', allow_responses: { max: 1, expires: "1m" }' if grant.may_reply else ""
    return (
        ", permissions: { publish: { allow: "
        f"{_render_list(grant.publish)} }}, "
        f"subscribe: {{ allow: {_render_list(grant.subscribe)} }}{answers} }}"
    )


def _render_lines(entries: Iterable[str]) -> str:
    return "".join(f"      {{ {entry} }}\n" for entry in entries)


def _render_exports() -> Iterable[str]:
    """Yield the configuration lines for the exports of `THINGWAY` to `OUTSIDE`."""
    for subject in (*RELAYED_SUBJECTS, DISABLED_API_TARGET):
        many = f', response_type: stream, response_threshold: "{MAX_PULL_SECONDS + 30}s"'
        answers = many if subject == PULL_SUBJECT else ""
        yield f'service: "{subject}"{answers}, accounts: [{EXTERNAL_ACCOUNT}]'
    for subject in _EXPORTED_SUBJECTS:
        yield f'stream: "{subject}", accounts: [{EXTERNAL_ACCOUNT}]'


def _render_imports() -> Iterable[str]:
    """Yield the configuration lines for the imports of `OUTSIDE` from `THINGWAY`."""
    source = f'account: {PLATFORM_ACCOUNT}, subject: "{DISABLED_API_TARGET}"'
    yield f'service: {{ {source} }}, to: "$JS.API.>"'
    for subject in RELAYED_SUBJECTS:
        source = f'account: {PLATFORM_ACCOUNT}, subject: "{subject}"'
        yield f'service: {{ {source} }}, to: "{relay_subject(subject)}"'
    for subject in _EXPORTED_SUBJECTS:
        yield f'stream: {{ account: {PLATFORM_ACCOUNT}, subject: "{subject}" }}'
