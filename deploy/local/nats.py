"""The configuration of nats-server: one text for the launcher, compose and Kubernetes.

One application account, `THINGWAY`, holds the services, the devices and the applications; `SYS`
holds the one user that hears of connections and closes them. The services' users stand in this
file and are named in `auth_users`, so they never wait for the auth service; every other
connection is put to the auth callout, which `auth` answers inside `THINGWAY`.

Options: https://docs.nats.io/running-a-nats-service/configuration. Which subjects a service
needs is the architecture's "The bus".
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from libs.common.contracts.integrations import BUILT_IN

ACCOUNT = "THINGWAY"
SYSTEM_ACCOUNT = "SYS"
ADMIN = "admin"
SYSTEM_USER = "sys"

_STREAMS = ("UPLINK", "EVENTS", "DEAD", "$MQTT_msgs")
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
        publish=("event.*.auth.>", *_EVENTS),
        subscribe=("$SYS.REQ.USER.AUTH", "rpc.auth.>"),
        calls=(
            "rpc.device.disconnect",
            "rpc.device.describe_devices",
            "rpc.management.describe_integrations",
            "rpc.management.describe_dashboards",
        ),
    ),
    "device": Grant(
        publish=(
            "event.*.device.>",
            "event.*.service.>",
            "event.*.task.>",
            "thing.*.down.>",
            "thing.*.up.>",
            "$MQTT.msgs.thing.*.down.>",
            "dead.>",
            *_EVENTS,
        ),
        subscribe=(
            "rpc.device.>",
            "ingest.>",
            "thing.*.down.>",
            "event.*.service.*.replied",
            *_CHANGES,
        ),
        calls=(
            "rpc.auth.issue_device_credentials",
            "rpc.auth.revoke_device_credentials",
            "rpc.auth.get_grants",
            "rpc.auth.forget_resources",
            "rpc.management.get_integrations",
            "rpc.integration.>",
            "rpc.workflow.call_flow",
        ),
    ),
    "device-ingest": Grant(
        publish=(
            "event.*.device.>",
            "event.*.thing.>",
            "event.*.service.>",
            "event.*.task.>",
            "dead.>",
            "ingest.>",
            *_consumer("UPLINK"),
        ),
        subscribe=_CHANGES,
        answers=False,
    ),
    "gateway": Grant(
        publish=("thing.*.up.>",),
        subscribe=("event.>", "rpc.gateway.>"),
        calls=("rpc.auth.check_device", "rpc.auth.get_access"),
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
            *_SHARING,
            "rpc.device.>",
            "rpc.management.announce_integration.*",
            "rpc.integration.>",
        ),
    ),
    "workflow": Grant(
        publish=("event.*.workflow.>", *_EVENTS),
        subscribe=("event.>", "rpc.workflow.>"),
        calls=(
            *_SHARING,
            "rpc.auth.describe_users",
            "rpc.device.resolve_entities",
            "rpc.device.entity_values",
            "rpc.device.update_entities",
            "rpc.device.call_service",
            "rpc.device.put_flow_service",
            "rpc.device.remove_flow_service",
        ),
    ),
}

SERVICE_USERS: tuple[str, ...] = tuple(_SERVICES)
"""The users of the services; each sets `_INBOX.{user}` as its inbox prefix."""

USERS: tuple[str, ...] = (*SERVICE_USERS, ADMIN, SYSTEM_USER)
"""Every user that needs a password."""


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
    """Unique in a cluster. MQTT sessions belong to it."""
    host: str = "127.0.0.1"
    port: int = 4222
    mqtt_port: int = 1883
    monitor_port: int | None = None
    """HTTP monitoring (`/healthz`, `/varz`): without authentication, so off unless asked for."""
    max_payload: int = 1024 * 1024
    """Bytes of one message, MQTT included; a client that sends more is disconnected."""
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
    monitor = "" if config.monitor_port is None else _listen("http", config, config.monitor_port)
    return f"""\
server_name: {_value(config.server_name)}
{_listen("listen", config, config.port)}{monitor}max_payload: {config.max_payload}

jetstream {{
  store_dir: {_value(str(config.store_dir))}
  sync_interval: {_value(config.sync_interval)}
  max_file_store: {config.max_file_store}
}}

mqtt {{
  {_listen("listen", config, config.mqtt_port)}\
  # Of one QoS 1 subscription; all of a session may have 65535, and `down/#` makes two.
  max_ack_pending: 100
  # After this a QoS 1 command that went to a connection already dead is sent again.
  ack_wait: "10s"
  # nats-server answers PUBCOMP even when it could not store the message.
  reject_qos2_publish: true
  downgrade_qos2_subscribe: true
}}

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
    users: [
{"".join(users)}    ]
  }}
  {SYSTEM_ACCOUNT} {{
    users: [
{_system_user(config.passwords[SYSTEM_USER])}    ]
  }}
}}
"""


def _value(text: str) -> str:
    """Quote `text`, unless it refers to the environment."""
    return text if _ENVIRONMENT_REFERENCE.fullmatch(text) else json.dumps(text)


def _list(texts: Iterable[str]) -> str:
    return json.dumps(list(texts))


def _listen(key: str, config: NatsConfig, port: int) -> str:
    return f"{key}: {_value(f'{config.host}:{port}')}\n"


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
        "$JS.API.INFO",
        *(f"$JS.API.STREAM.{verb}.{stream}" for stream in _STREAMS for verb in ("INFO", "CREATE")),
    )
    subscribe = (*grant.subscribe, f"_INBOX.{name}.>", *(("$SRV.>",) if grant.answers else ()))
    extra = ', allow_responses: { max: 1, expires: "1m" }' if grant.answers else ""
    return _user(name, password, _permissions(publish, subscribe, extra))


def _system_user(password: str) -> str:
    publish = (
        "$SYS.REQ.SERVER.PING.CONNZ",
        "$SYS.REQ.SERVER.PING.HEALTHZ",
        "$SYS.REQ.SERVER.*.CONNZ",
        "$SYS.REQ.SERVER.*.KICK",
    )
    subscribe = (
        f"$SYS.ACCOUNT.{ACCOUNT}.CONNECT",
        f"$SYS.ACCOUNT.{ACCOUNT}.DISCONNECT",
        "$SYS.SERVER.*.SHUTDOWN",
        f"_INBOX.{SYSTEM_USER}.>",
    )
    return _user(SYSTEM_USER, password, _permissions(publish, subscribe))
