"""The configuration of nats-server: one text for the launcher, compose and Kubernetes.

Three accounts (docs/decisions/0020). `THINGWAY` holds JetStream, the services, and the devices that
speak MQTT, which can set neither reply subjects nor headers. `OUTSIDE` holds every other connection
from outside and has no JetStream: what is said there reaches `gateway-bus` only, which passes on,
under `relay.`, what keeps to the rules. `SYS` holds the one user that hears of connections and
closes them. The services' users (`nats_grants`) are named in `auth_users`, so they never wait for
the auth service; every other connection is put to the auth callout, which `auth` answers inside
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
    ADMIN,
    BACKUP,
    GRANTS,
    RELAY,
    SERVICE_USERS,
    SYSTEM_USER,
    USERS,
    Grant,
)
from libs.common.bus.accounts import (
    ACCOUNT,
    DEAD_END,
    OUTSIDE,
    OUTSIDE_SUBSCRIPTIONS,
    PULL,
    PULL_LIFE,
    RELAYED,
    relayed,
)
from libs.common.bus.streams import SESSION_DAYS, Partitions
from libs.common.bus.subjects import partitioned, up
from libs.common.settings import SettingsInvalid, load

SYSTEM_ACCOUNT = "SYS"
ROUTE = "route"
"""As whom servers of a cluster log in to each other."""

SERVICE_SUBSCRIPTIONS = 20_000
"""Of one connection in `ACCOUNT`: a service has one for each call that waits.

nats-server reads no limit from the answer of an auth callout; presence closes an MQTT
connection that has more than `MQTT_SUBSCRIPTIONS`.
"""

_HANDSHAKE_SECONDS = 10
"""For a TLS handshake; by default it is two, and many devices come at once."""
_ENVIRONMENT_REFERENCE = re.compile(r"\$[A-Z][A-Z0-9_]*")


_OPEN_STREAMS = ("event.>", "thing.*.down.>")
"""What is said in `THINGWAY` and may be heard in `OUTSIDE`, by whom the callout allows it."""
_ASKED = "rpc.integration.*.*"
"""What services ask of integrations, which are in `OUTSIDE`."""


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """A server's certificate with its chain, and the key of it, in PEM."""

    certificate: PurePath
    key: PurePath


@dataclass(frozen=True)
class _Chosen:
    uplink_partitions: Partitions = 1


def chosen_partitions() -> int:
    """What the operator has chosen in the environment, for the server and for `device-ingest`.

    Raises `LauncherError`.
    """
    try:
        return load(_Chosen).uplink_partitions
    except SettingsInvalid as error:
        raise LauncherError(str(error), Exit.CANNOT_START) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsCluster:
    """Where a server meets the others of its cluster, and they it."""

    host: str
    port: int
    routes: tuple[str, ...]
    """`host:port` of every member; this one may be among them."""
    password: str
    """What members show each other; it stands in addresses, so it is no reference."""
    replicas: int = 3
    """Members that keep what nats-server itself makes for MQTT."""
    tag: str = ""
    """By which a stream can be asked to be on this server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsConfig:
    """What differs from one nats-server to the next."""

    passwords: Mapping[str, str]
    """A password for each of `USERS`, or a reference to the environment (`$NATS_AUTH_PASSWORD`);
    what such a variable holds must not look like a number."""
    callout_issuer: str
    """The public account key (`A…`) whose seed the auth service signs its answers with."""
    store_dir: PurePath
    server_name: str = "thingway"
    """Unique in a cluster, and kept: by it the others know whose streams a server keeps."""
    cluster: NatsCluster | None = None
    host: str = "127.0.0.1"
    port: int = 4222
    mqtt_port: int = 1883
    websocket_port: int | None = None
    """MQTT (at `/mqtt`) and NATS over WebSocket."""
    tls: ServerFiles | None = None
    """With it, all of these speak TLS and nothing else; the files are read again on SIGHUP."""
    monitor_port: int | None = None
    """HTTP monitoring (`/healthz`, `/varz`): without authentication, so off unless asked for."""
    max_payload: int = 1024 * 1024
    """Bytes of one message, MQTT included; a client that sends more is disconnected."""
    partitions: Partitions = 1
    """Streams that what devices say is spread over by SN; one is `UPLINK`. When there become more,
    `device-ingest` has to know it first, and last when there become fewer."""
    sync_interval: str = "100ms"
    """What a power cut may take of what JetStream has acknowledged (`always`: nothing)."""
    max_file_store: int = 1024**4
    """Bytes that streams may reserve. By default nats-server takes 75 % of what is free when it
    starts, and with a disk of less than 24 GB our streams, which are bounded each, would not be
    made."""
    auth_timeout: float = 5.0
    """Seconds a connection may wait for the auth callout."""


def render_nats_config(config: NatsConfig) -> str:
    """Return the text of the configuration file (keep it at mode 0600: it holds passwords).

    Raises `ValueError` when a password is missing.
    """
    missing = [user for user in USERS if not config.passwords.get(user)]
    if missing:
        raise ValueError(f"no password for the NATS users {', '.join(missing)}")
    users = "".join(_user(name, config) for name in (*SERVICE_USERS, ADMIN, BACKUP))
    monitor = "" if config.monitor_port is None else _listen("http", config, config.monitor_port)
    return f"""\
server_name: {_value(config.server_name)}
{_listen("listen", config, config.port)}{monitor}max_payload: {config.max_payload}
{_tls(config)}{_websocket(config)}
jetstream {{
  store_dir: {_value(str(config.store_dir))}
  sync_interval: {_value(config.sync_interval)}
  max_file_store: {config.max_file_store}
}}

mqtt {{
  {_listen("listen", config, config.mqtt_port)}{_tls(config)}\
  # Of one QoS 1 subscription; all of a session may have 65535, and `down/#` makes two.
  max_ack_pending: 100
  # After this a QoS 1 command that went to a connection already dead is sent again.
  ack_wait: "10s"
  # nats-server answers PUBCOMP even when it could not store the message.
  reject_qos2_publish: true
  downgrade_qos2_subscribe: true
  # As long as `$MQTT_sess` keeps the session.
  consumer_inactive_threshold: "{SESSION_DAYS * 24}h"
{_mqtt_replicas(config.cluster)}}}
{_cluster(config.cluster)}
system_account: {SYSTEM_ACCOUNT}

authorization {{
  timeout: {config.auth_timeout}
  auth_callout {{
    issuer: {_value(config.callout_issuer)}
    account: {ACCOUNT}
    auth_users: {_list(USERS)}
  }}
}}

accounts {{
  {ACCOUNT} {{
    jetstream: enabled
    limits {{ max_subscriptions: {SERVICE_SUBSCRIPTIONS} }}
{_mappings(config.partitions)}    users: [
{users}    ]
    exports: [
{_lines(_exports())}    ]
    imports: [
      {{ service: {{ account: {OUTSIDE}, subject: "{_ASKED}" }} }}
    ]
  }}
  {OUTSIDE} {{
    limits {{ max_subscriptions: {OUTSIDE_SUBSCRIPTIONS} }}
    users: [
{_user(RELAY, config)}    ]
    exports: [
      {{ service: "{_ASKED}", accounts: [{ACCOUNT}] }}
    ]
    imports: [
{_lines(_imports())}    ]
  }}
  {SYSTEM_ACCOUNT} {{
    users: [
{_user(SYSTEM_USER, config)}    ]
  }}
}}
"""


def _cluster(cluster: NatsCluster | None) -> str:
    """Members are told to nobody: what clients reach is the operator's to say."""
    if cluster is None:
        return ""
    login = f"{ROUTE}:{cluster.password}@"
    tags = f"\nserver_tags: {_list([cluster.tag])}\n" if cluster.tag else ""
    return f"""{tags}
cluster {{
  name: thingway
  listen: {_value(f"{cluster.host}:{cluster.port}")}
  no_advertise: true
  authorization {{ user: {ROUTE}, password: {_value(cluster.password)}, timeout: 5 }}
  routes: {_list(f"nats://{login}{route}" for route in cluster.routes)}
}}
# With `ldm`, before a planned end: clients are sent to the other members bit by bit.
lame_duck_grace_period: "5s"
lame_duck_duration: "30s"
"""


def _mqtt_replicas(cluster: NatsCluster | None) -> str:
    return "" if cluster is None else f"  stream_replicas: {cluster.replicas}\n"


def _value(text: str) -> str:
    """Quote `text`, unless it refers to the environment."""
    return text if _ENVIRONMENT_REFERENCE.fullmatch(text) else json.dumps(text)


def _mappings(partitions: int) -> str:
    if partitions == 1:
        return ""
    chosen = f"{{{{partition({partitions},1)}}}}"
    to = partitioned("{{wildcard(1)}}", "{{wildcard(2)}}", chosen)
    return f"    mappings: {{ {_value(up('*', '*'))}: {_value(to)} }}\n"


def _list(texts: Iterable[str]) -> str:
    return json.dumps(list(texts))


def _listen(key: str, config: NatsConfig, port: int) -> str:
    return f"{key}: {_value(f'{config.host}:{port}')}\n"


def _tls(config: NatsConfig) -> str:
    if config.tls is None:
        return ""
    files = config.tls
    return (
        f"tls {{ cert_file: {_value(str(files.certificate))}, key_file: {_value(str(files.key))}, "
        f"timeout: {_HANDSHAKE_SECONDS} }}\n"
    )


def _websocket(config: NatsConfig) -> str:
    if config.websocket_port is None:
        return ""
    security = _tls(config) or "no_tls: true\n"
    return f"websocket {{ {_listen('listen', config, config.websocket_port)}  {security}}}\n"


def _user(name: str, config: NatsConfig) -> str:
    password = _value(config.passwords[name])
    permissions = _permissions(GRANTS[name]) if name in GRANTS else ""
    return f"      {{ user: {name}, password: {password}{permissions} }}\n"


def _permissions(grant: Grant) -> str:
    answers = ', allow_responses: { max: 1, expires: "1m" }' if grant.answers else ""
    return (
        ", permissions: { publish: { allow: "
        f"{_list(grant.publish)} }}, subscribe: {{ allow: {_list(grant.subscribe)} }}{answers} }}"
    )


def _lines(entries: Iterable[str]) -> str:
    return "".join(f"      {{ {entry} }}\n" for entry in entries)


def _exports() -> Iterable[str]:
    """What `THINGWAY` gives to `OUTSIDE`."""
    for subject in (*RELAYED, DEAD_END):
        many = f', response_type: stream, response_threshold: "{PULL_LIFE + 30}s"'
        answers = many if subject == PULL else ""
        yield f'service: "{subject}"{answers}, accounts: [{OUTSIDE}]'
    for subject in _OPEN_STREAMS:
        yield f'stream: "{subject}", accounts: [{OUTSIDE}]'


def _imports() -> Iterable[str]:
    """What `OUTSIDE` takes from `THINGWAY`."""
    yield f'service: {{ account: {ACCOUNT}, subject: "{DEAD_END}" }}, to: "$JS.API.>"'
    for subject in RELAYED:
        taken = f'account: {ACCOUNT}, subject: "{subject}"'
        yield f'service: {{ {taken} }}, to: "{relayed(subject)}"'
    for subject in _OPEN_STREAMS:
        yield f'stream: {{ account: {ACCOUNT}, subject: "{subject}" }}'
