"""The configuration of nats-server: one text for the launcher, compose and Kubernetes.

Three accounts (docs/decisions/0020). `THINGWAY` holds JetStream, the services, and the devices that
speak MQTT, which can set neither reply subjects nor headers. `OUTSIDE` holds every other connection
from outside and has no JetStream: what is said there reaches `gateway-bus` only, which passes on,
under `relay.`, what keeps to the rules. `SYS` holds the one user that hears of connections and
closes them. The services' users stand in this file and are named in `auth_users`, so they never
wait for the auth service; every other connection is put to the auth callout, which `auth` answers
inside `THINGWAY`.

Options: https://docs.nats.io/running-a-nats-service/configuration. Which subjects a service
needs is the architecture's "The bus".
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from deploy.platform.errors import Exit, LauncherError
from libs.common.bus.accounts import (
    ACCOUNT,
    ACCOUNTS,
    DEAD_END,
    OUTSIDE,
    OUTSIDE_INBOXES,
    OUTSIDE_SUBSCRIPTIONS,
    PULL,
    PULL_LIFE,
    RELAYED,
    relayed,
)
from libs.common.bus.streams import PARTITIONS, SESSION_DAYS, STREAMS, UPLINKS, Partitions
from libs.common.bus.subjects import OUTSIDE_TOPICS, partitioned, up
from libs.common.contracts.integrations import BUILT_IN
from libs.common.settings import SettingsInvalid, load

SYSTEM_ACCOUNT = "SYS"
ADMIN = "admin"
BACKUP = "backup"
"""Reads streams for a backup; restoring one is the administrator's."""
SYSTEM_USER = "sys"
RELAY = "relay"
"""The user of `gateway-bus` in `OUTSIDE`, the only one of ours there."""
ROUTE = "route"
"""As whom servers of a cluster log in to each other."""

SERVICE_SUBSCRIPTIONS = 20_000
"""Of one connection in `ACCOUNT`: a service has one for each call that waits.

nats-server reads no limit from the answer of an auth callout; presence closes an MQTT
connection that has more than `MQTT_SUBSCRIPTIONS`.
"""

_STREAMS = tuple(STREAMS)
_UP = ("thing.*.up.>", partitioned("*", "*", "*"))
"""What devices say; the server looks at the subject that it has mapped."""
_HANDSHAKE_SECONDS = 10
"""For a TLS handshake; by default it is two, and many devices come at once."""
_ENVIRONMENT_REFERENCE = re.compile(r"\$[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Grant:
    """What one user may say and hear."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    """Operations of other services that it may ask for."""
    answers: bool = True
    """May answer each request it receives once. Off for bulk consumers: the server remembers the
    reply subject of every message it delivers to such a user."""


def _consumer(stream: str) -> tuple[str, ...]:
    """Return what creating, reading and acknowledging consumers of `stream` takes."""
    return (
        f"$JS.API.CONSUMER.CREATE.{stream}.>",
        f"$JS.API.CONSUMER.INFO.{stream}.*",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*",
        f"$JS.ACK.{stream}.>",
    )


_EVENTS = _consumer("EVENTS")
_CHANGES = tuple(f"event.*.device.*.{change}" for change in ("added", "updated", "deleted"))

_SHARING = ("rpc.auth.get_grants", "rpc.auth.share_with_roles", "rpc.auth.forget_resources")
"""What owners of resources ask: who sees which, grant a new one, forget one that is gone."""

_SERVICES: Mapping[str, Grant] = {
    "auth": Grant(
        publish=(
            "event.*.auth.>",
            "use.ask",
            *_EVENTS,
            "$JS.API.CONSUMER.NAMES.EVENTS",
            "$JS.API.CONSUMER.DELETE.EVENTS.*",
            "$JS.API.STREAM.MSG.GET.EVENTS",
            "$JS.API.STREAM.PURGE.EVENTS",
        ),
        subscribe=("$SYS.REQ.USER.AUTH", "rpc.auth.>", "use.answer.*"),
        calls=(
            "rpc.device.find_connections",
            "rpc.device.close_connections",
            "rpc.device.give_device",
            "rpc.device.take_device",
            "rpc.auth.get_limits",
            "rpc.device.describe_devices",
            "rpc.device.describe_groups",
            "rpc.device.resolve_entities",
            "rpc.management.get_integrations",
            "rpc.management.describe_integrations",
            "rpc.management.describe_dashboards",
            "rpc.workflow.describe_flows",
            "rpc.workflow.mqtt_login",
            "$JS.API.STREAM.MSG.GET.$MQTT_sess",
        ),
    ),
    "device": Grant(
        publish=(
            "event.*.device.>",
            "event.*.service.>",
            "event.*.task.>",
            "event.*.alarm.>",
            "event.*.look.*",
            "thing.*.down.>",
            *_UP,
            "$MQTT.msgs.thing.*.down.>",
            "dead.>",
            *_EVENTS,
            "$JS.API.STREAM.PURGE.$MQTT_msgs",
            *(
                f"$JS.API.STREAM.MSG.{verb}.{stream}"
                for verb in ("GET", "DELETE")
                for stream in ("$MQTT_msgs", "EVENTS", "DEAD")
            ),
            *(f"$JS.API.STREAM.MSG.GET.{stream}" for stream in UPLINKS),
            *(f"$JS.API.STREAM.INFO.{stream}" for stream in PARTITIONS),
            *_consumer("DEAD"),
            *(f"$JS.API.CONSUMER.DELETE.{stream}.*" for stream in ("EVENTS", "DEAD")),
        ),
        subscribe=(
            "rpc.device.>",
            "ingest.>",
            "thing.*.down.>",
            "event.*.service.*.replied",
            "event.*.auth.application.deleted",
            *_CHANGES,
        ),
        calls=(
            "rpc.auth.get_limits",
            "rpc.auth.get_application",
            "rpc.auth.issue_device_credentials",
            "rpc.auth.issue_first_device_credentials",
            "rpc.auth.revoke_device_credentials",
            "rpc.auth.last_refused_login",
            "rpc.auth.describe_users",
            "rpc.auth.get_grants",
            "rpc.auth.forget_resources",
            "rpc.management.get_integrations",
            "rpc.management.canvas_of_device",
            "rpc.management.read_resource",
            "rpc.integration.>",
            "rpc.workflow.call_flow",
        ),
    ),
    "device-ingest": Grant(
        publish=(
            "event.*.device.>",
            "event.*.thing.>",
            "event.*.look.*",
            "event.*.service.>",
            "event.*.task.>",
            "dead.>",
            "ingest.>",
            *(subject for stream in UPLINKS for subject in _consumer(stream)),
            *(f"$JS.API.STREAM.UPDATE.{stream}" for stream in (*_STREAMS, *PARTITIONS)),
            *(f"$JS.API.STREAM.{verb}.{one}" for verb in ("INFO", "CREATE") for one in PARTITIONS),
        ),
        subscribe=_CHANGES,
        calls=("rpc.auth.get_limits", "rpc.auth.shut_out"),
        answers=False,
    ),
    "gateway": Grant(
        publish=_UP,
        subscribe=("event.>", "rpc.gateway.>"),
        calls=(
            "rpc.auth.check_device",
            "rpc.auth.check_device_certificate",
            "rpc.auth.get_access",
            "rpc.auth.get_limits",
        ),
    ),
    "gateway-bus": Grant(
        publish=(),
        calls=("rpc.auth.get_limits", "rpc.auth.shut_out"),
        answers=False,
    ),
    "management": Grant(
        publish=("event.*.integration.>", *_EVENTS),
        subscribe=(
            "event.>",
            "rpc.management.>",
            *(f"rpc.integration.{one}.>" for one in BUILT_IN),
        ),
        calls=(
            "rpc.auth.get_access",
            "rpc.auth.get_limits",
            *_SHARING,
            "rpc.device.>",
            "rpc.management.announce_integration.*",
            "rpc.integration.>",
        ),
    ),
    "workflow": Grant(
        publish=("event.*.workflow.>", *_EVENTS),
        subscribe=("event.>", "rpc.workflow.>", OUTSIDE_TOPICS),
        calls=(
            *_SHARING,
            "rpc.auth.close_mqtt_clients",
            "rpc.auth.describe_users",
            "rpc.auth.get_access",
            "rpc.auth.get_limits",
            "rpc.auth.has_live_pages",
            "rpc.device.describe_devices",
            "rpc.device.resolve_entities",
            "rpc.device.entity_values",
            "rpc.device.update_entities",
            "rpc.device.call_service",
            "rpc.device.change_alarm",
            "rpc.device.put_flow_service",
            "rpc.device.remove_flow_service",
        ),
    ),
}

_OPEN_STREAMS = ("event.>", "thing.*.down.>")
"""What is said in `THINGWAY` and may be heard in `OUTSIDE`, by whom the callout allows it."""
_ASKED = "rpc.integration.*.*"
"""What services ask of integrations, which are in `OUTSIDE`."""

SERVICE_USERS: tuple[str, ...] = tuple(_SERVICES)
"""The users of the services; each sets `_INBOX.{user}` as its inbox prefix."""

USERS: tuple[str, ...] = (*SERVICE_USERS, RELAY, ADMIN, BACKUP, SYSTEM_USER)
"""Every user that needs a password."""


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
    users = [_service(user, config.passwords[user]) for user in SERVICE_USERS]
    users.append(_user(ADMIN, config.passwords[ADMIN], ""))
    users.append(_user(BACKUP, config.passwords[BACKUP], _backup_permissions()))
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
{"".join(users)}    ]
    exports: [
{_lines(_exports())}    ]
    imports: [
      {{ service: {{ account: {OUTSIDE}, subject: "{_ASKED}" }} }}
    ]
  }}
  {OUTSIDE} {{
    limits {{ max_subscriptions: {OUTSIDE_SUBSCRIPTIONS} }}
    users: [
{_user(RELAY, config.passwords[RELAY], _relay_permissions())}    ]
    exports: [
      {{ service: "{_ASKED}", accounts: [{ACCOUNT}] }}
    ]
    imports: [
{_lines(_imports())}    ]
  }}
  {SYSTEM_ACCOUNT} {{
    users: [
{_system_user(config.passwords[SYSTEM_USER])}    ]
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


def _user(name: str, password: str, permissions: str) -> str:
    return f"      {{ user: {name}, password: {_value(password)}{permissions} }}\n"


def _permissions(publish: Iterable[str], subscribe: Iterable[str], extra: str = "") -> str:
    return (
        ", permissions: { publish: { allow: "
        f"{_list(publish)} }}, subscribe: {{ allow: {_list(subscribe)} }}{extra} }}"
    )


def _service(name: str, password: str) -> str:
    grant = _SERVICES[name]
    publish = (
        *grant.publish,
        *grant.calls,
        "use.answer.*",
        "$JS.API.INFO",
        *(f"$JS.API.STREAM.{verb}.{stream}" for stream in _STREAMS for verb in ("INFO", "CREATE")),
    )
    subscribe = (
        *grant.subscribe,
        "use.ask",
        f"_INBOX.{name}.>",
        *(("$SRV.>",) if grant.answers else ()),
    )
    extra = ', allow_responses: { max: 1, expires: "1m" }' if grant.answers else ""
    return _user(name, password, _permissions(publish, subscribe, extra))


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


def _relay_permissions() -> str:
    """May pass on and answer at any inbox from outside, and speak as nobody."""
    publish = (*map(relayed, RELAYED), *OUTSIDE_INBOXES)
    return _permissions(publish, RELAYED)


def _backup_permissions() -> str:
    """May read whole streams, and change nothing but consumers of its own."""
    publish = (
        "$JS.API.STREAM.INFO.*",
        "$JS.API.STREAM.SNAPSHOT.*",
        "$JS.SNAPSHOT.ACK.>",
        *(f"$JS.API.CONSUMER.{verb}" for verb in ("CREATE.EVENTS.>", "CREATE.DEAD.>")),
        *(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*" for stream in ("EVENTS", "DEAD")),
    )
    return _permissions(publish, (f"_INBOX.{BACKUP}.>",))


def _system_user(password: str) -> str:
    publish = (
        "$SYS.REQ.SERVER.PING.CONNZ",
        "$SYS.REQ.SERVER.PING.HEALTHZ",
        "$SYS.REQ.SERVER.*.CONNZ",
        "$SYS.REQ.SERVER.*.KICK",
    )
    subscribe = (
        *(f"$SYS.ACCOUNT.{one}.{what}" for one in ACCOUNTS for what in ("CONNECT", "DISCONNECT")),
        "$SYS.SERVER.*.SHUTDOWN",
        f"_INBOX.{SYSTEM_USER}.>",
    )
    return _user(SYSTEM_USER, password, _permissions(publish, subscribe))
