"""The users of nats-server and their permissions."""

from collections.abc import Mapping
from dataclasses import dataclass

from libs.common.bus.accounts import (
    EXTERNAL_INBOXES,
    LOGIN_ACCOUNTS,
    RELAYED_SUBJECTS,
    relay_subject,
)
from libs.common.bus.streams import (
    EVENT_PARTITION_NAMES,
    EVENTS,
    STREAM_CONFIGS,
    UPLINK_PARTITION_CONFIGS,
    UPLINK_STREAM_NAMES,
)
from libs.common.bus.subjects import (
    EVENT_PREFIX,
    EXTERNAL_TOPICS,
    partitioned_uplink_subject,
    wakeup_subject,
)
from libs.common.contracts.backups import RECORD_BACKUP
from libs.common.contracts.integrations import BUILT_IN_IDS

ADMIN_USER = "admin"
BACKUP_USER = "backup"
"""The user that reads streams for a backup; a restore runs as administrator."""
SYSTEM_USER = "sys"
"""The user as which `device` observes and closes connections, and the launcher checks servers."""
SYSTEM_ADMIN_USER = "sys-admin"
"""The user as which an operator removes a server from a cluster; no process has its password."""
RELAY_USER = "relay"
"""The user of `gateway-bus` in `OUTSIDE`, our only user there."""

_DEVICE_SUBJECTS = ("thing.*.up.>", partitioned_uplink_subject("*", "*", "*"))
"""Subjects of device messages, as sent and as nats-server maps them; it checks the mapped ones."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The subjects that a NATS user may publish and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    may_reply: bool = False
    """Whether the user may reply once to each request.

    Off for bulk consumers, because the server stores the reply subject of each delivered message.
    """


def _build_service_grant(
    name: str,
    *,
    publish: tuple[str, ...] = (),
    subscribe: tuple[str, ...] = (),
    calls: tuple[str, ...],
    may_reply: bool = True,
) -> Grant:
    """Return the grant of a service; `calls` are RPC operations of other services."""
    common = [
        f"$JS.API.STREAM.{verb}.{name}" for name in STREAM_CONFIGS for verb in ("INFO", "CREATE")
    ]
    common += [f"$JS.API.STREAM.INFO.{name}" for name in EVENT_PARTITION_NAMES]
    events = (f"events.*.*.{subject}" for subject in publish if subject.startswith(EVENT_PREFIX))
    discovery = ("$SRV.>",) if may_reply else ()
    return Grant(
        (*publish, *events, *calls, "use.answer.*", "$JS.API.INFO", *common),
        (*subscribe, "use.ask", f"_INBOX.{name}.>", *discovery),
        may_reply,
    )


def _consumer_subjects(stream: str) -> tuple[str, ...]:
    """Return the subjects to create, read and acknowledge consumers of `stream`."""
    return (
        f"$JS.API.CONSUMER.CREATE.{stream}.>",
        f"$JS.API.CONSUMER.INFO.{stream}.*",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*",
        f"$JS.ACK.{stream}.>",
    )


_EVENT_STREAMS = (EVENTS, *EVENT_PARTITION_NAMES)
_EVENT_CONSUMER_SUBJECTS = tuple(
    subject for stream in _EVENT_STREAMS for subject in _consumer_subjects(stream)
)
_DEVICE_CHANGE_SUBJECTS = tuple(
    f"event.*.device.*.{change}" for change in ("added", "updated", "deleted")
)

_RESOURCE_GRANT_CALLS = (
    "rpc.auth.get_grants",
    "rpc.auth.share_with_roles",
    "rpc.auth.forget_resources",
)
"""Operations of `auth` for services with resources: read, add and delete grants to roles."""

_GRANT_BY_SERVICE = {
    "auth": _build_service_grant(
        "auth",
        publish=(
            "event.*.auth.>",
            "use.ask",
            *_EVENT_CONSUMER_SUBJECTS,
            "$JS.API.CONSUMER.NAMES.EVENTS",
            "$JS.API.CONSUMER.DELETE.EVENTS.*",
            "$JS.API.STREAM.UPDATE.EVENTS",
            *(
                f"$JS.API.STREAM.{verb}.{stream}"
                for verb in ("MSG.GET", "PURGE")
                for stream in _EVENT_STREAMS
            ),
            *(
                f"$JS.API.STREAM.{verb}.{stream}"
                for verb in ("CREATE", "UPDATE")
                for stream in EVENT_PARTITION_NAMES
            ),
            *(f"$JS.API.CONSUMER.DELETE.{stream}.*" for stream in EVENT_PARTITION_NAMES),
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
    "device": _build_service_grant(
        "device",
        publish=(
            "event.*.device.>",
            "event.*.service.>",
            "event.*.task.>",
            "event.*.alarm.>",
            "event.*.look.*",
            "thing.*.down.>",
            *_DEVICE_SUBJECTS,
            "$MQTT.msgs.thing.*.down.>",
            "dead.>",
            wakeup_subject("device"),
            *_EVENT_CONSUMER_SUBJECTS,
            "$JS.API.STREAM.PURGE.$MQTT_msgs",
            *(
                f"$JS.API.STREAM.MSG.{verb}.{stream}"
                for verb in ("GET", "DELETE")
                for stream in ("$MQTT_msgs", *_EVENT_STREAMS, "DEAD")
            ),
            *(f"$JS.API.STREAM.MSG.GET.{stream}" for stream in UPLINK_STREAM_NAMES),
            *(f"$JS.API.STREAM.INFO.{stream}" for stream in UPLINK_PARTITION_CONFIGS),
            *_consumer_subjects("DEAD"),
            *(f"$JS.API.CONSUMER.DELETE.{stream}.*" for stream in (*_EVENT_STREAMS, "DEAD")),
        ),
        subscribe=(
            "rpc.device.>",
            "ingest.>",
            "thing.*.down.>",
            "event.*.service.*.replied",
            "event.*.auth.application.deleted",
            wakeup_subject("device"),
            *_DEVICE_CHANGE_SUBJECTS,
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
    "device-ingest": _build_service_grant(
        "device-ingest",
        publish=(
            "event.*.device.>",
            "event.*.thing.>",
            "event.*.look.*",
            "event.*.service.>",
            "event.*.task.>",
            "dead.>",
            "ingest.>",
            wakeup_subject("device"),
            *(subject for stream in UPLINK_STREAM_NAMES for subject in _consumer_subjects(stream)),
            *(
                f"$JS.API.STREAM.UPDATE.{stream}"
                for stream in (*STREAM_CONFIGS, *UPLINK_PARTITION_CONFIGS)
            ),
            *(
                f"$JS.API.STREAM.{verb}.{name}"
                for verb in ("INFO", "CREATE")
                for name in UPLINK_PARTITION_CONFIGS
            ),
        ),
        subscribe=_DEVICE_CHANGE_SUBJECTS,
        calls=("rpc.auth.get_limits", "rpc.auth.shut_out"),
        may_reply=False,
    ),
    "gateway": _build_service_grant(
        "gateway",
        publish=_DEVICE_SUBJECTS,
        subscribe=("event.>", "rpc.gateway.>"),
        calls=(
            "rpc.auth.check_device",
            "rpc.auth.check_device_certificate",
            "rpc.auth.get_access",
            "rpc.auth.get_limits",
        ),
    ),
    "gateway-bus": _build_service_grant(
        "gateway-bus",
        calls=("rpc.auth.get_limits", "rpc.auth.shut_out"),
        may_reply=False,
    ),
    "management": _build_service_grant(
        "management",
        publish=("event.*.integration.>", *_EVENT_CONSUMER_SUBJECTS),
        subscribe=(
            "event.>",
            "rpc.management.>",
            *(f"rpc.integration.{name}.>" for name in BUILT_IN_IDS),
        ),
        calls=(
            "rpc.auth.get_access",
            "rpc.auth.get_limits",
            *_RESOURCE_GRANT_CALLS,
            "rpc.device.>",
            "rpc.management.announce_integration.*",
            "rpc.integration.>",
        ),
    ),
    "workflow": _build_service_grant(
        "workflow",
        publish=("event.*.workflow.>", wakeup_subject("workflow"), *_EVENT_CONSUMER_SUBJECTS),
        subscribe=("event.>", "rpc.workflow.>", wakeup_subject("workflow"), EXTERNAL_TOPICS),
        calls=(
            *_RESOURCE_GRANT_CALLS,
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

SERVICE_USERS: tuple[str, ...] = tuple(_GRANT_BY_SERVICE)
"""The users of the services; the inbox prefix of each is `_INBOX.{user}`."""

USERS: tuple[str, ...] = (
    *SERVICE_USERS,
    RELAY_USER,
    ADMIN_USER,
    BACKUP_USER,
    SYSTEM_USER,
    SYSTEM_ADMIN_USER,
)
"""All users with a password."""

GRANT_BY_USER: Mapping[str, Grant] = {
    **_GRANT_BY_SERVICE,
    # Forwards messages and replies to any external inbox.
    RELAY_USER: Grant((*map(relay_subject, RELAYED_SUBJECTS), *EXTERNAL_INBOXES), RELAYED_SUBJECTS),
    # Reads whole streams, and manages only its own consumers.
    BACKUP_USER: Grant(
        publish=(
            RECORD_BACKUP,
            "$JS.API.STREAM.INFO.*",
            "$JS.API.STREAM.SNAPSHOT.*",
            "$JS.SNAPSHOT.ACK.>",
            *(
                f"$JS.API.CONSUMER.{operation}"
                for stream in (*_EVENT_STREAMS, "DEAD")
                for operation in (f"CREATE.{stream}.>", f"MSG.NEXT.{stream}.*")
            ),
        ),
        subscribe=(f"_INBOX.{BACKUP_USER}.>",),
    ),
    SYSTEM_USER: Grant(
        publish=(
            "$SYS.REQ.SERVER.PING.CONNZ",
            "$SYS.REQ.SERVER.PING.HEALTHZ",
            "$SYS.REQ.SERVER.PING.JSZ",
            "$SYS.REQ.SERVER.*.CONNZ",
            "$SYS.REQ.SERVER.*.KICK",
        ),
        subscribe=(
            *(
                f"$SYS.ACCOUNT.{account}.{event}"
                for account in LOGIN_ACCOUNTS
                for event in ("CONNECT", "DISCONNECT")
            ),
            "$SYS.SERVER.*.SHUTDOWN",
            f"_INBOX.{SYSTEM_USER}.>",
        ),
    ),
    # `nats server cluster peer-remove` counts the servers and finds the leader before the removal.
    SYSTEM_ADMIN_USER: Grant(
        publish=(
            "$SYS.REQ.SERVER.PING",
            "$SYS.REQ.SERVER.PING.JSZ",
            "$JS.API.SERVER.REMOVE",
        ),
        subscribe=(f"_INBOX.{SYSTEM_ADMIN_USER}.>",),
    ),
}
"""Grants by user; `ADMIN_USER` has none and may do everything."""
