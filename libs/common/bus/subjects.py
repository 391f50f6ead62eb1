"""Subjects of device messages, commands, events and wakeups.

Subjects of rpc are in `rpc` and in `libs.common.contracts`, those of the relay in `accounts`.
"""

from collections.abc import Collection, Sequence
from zlib import crc32

EVENT_PREFIX = "event."
"""The beginning of the subject of each event."""


def is_token(text: str) -> bool:
    """Return whether `text` is a single token of a subject and a single level of an MQTT topic.

    Separators and wildcards of either protocol would widen a permission (`thing.*.up.>`); blanks
    and control characters would break the protocol.
    """
    return bool(text) and text.isascii() and text.isprintable() and not set(text) & set(" .*>/+#$")


def uplink_subject(sn: str, channel: str) -> str:
    """Return `thing.{sn}.up.{report|event|reply|frame}`: a message from a device."""
    return f"thing.{sn}.up.{channel}"


def partitioned_uplink_subject(sn: str, channel: str, partition: object) -> str:
    """Return `uplink.{partition}.{sn}.{channel}`: with partitions, a message from a device."""
    return f"uplink.{partition}.{sn}.{channel}"


def event_partition_number(subject: str, partitions: int) -> int:
    """Return the partition of an event, a number from 0.

    It depends on the fourth token of the subject: the id of the device, if it has one.
    """
    return crc32("".join(subject.split(".", 4)[3:4]).encode()) % partitions


def partitioned_event_subject(subject: str, partitions: int) -> str:
    """Return `events.{partitions}.{partition}.{subject}`, on which a partition stores an event."""
    return f"events.{partitions}.{event_partition_number(subject, partitions)}.{subject}"


def partition_prefix(subject: str) -> str:
    """Return `events.{partitions}.{partition}` of a partitioned event; empty for other subjects."""
    return ".".join(subject.split(".", 3)[:3]) if subject.startswith("events.") else ""


def command_subject(sn: str) -> str:
    """Return `thing.{sn}.down.command`: a command to a device."""
    return f"thing.{sn}.down.command"


def device_event(tenant: str, device_id: int, change: str) -> str:
    """Return `event.{tenant}.device.{id}.{added|updated|deleted|online|...|reported|...}`."""
    return f"event.{tenant}.device.{device_id}.{change}"


def thing_event(tenant: str, thing_id: int, change: str) -> str:
    """Return `event.{tenant}.thing.{id}.{reported|rejected}`, for things that are not devices."""
    return f"event.{tenant}.thing.{thing_id}.{change}"


def service_event(tenant: str, device_id: int, change: str) -> str:
    """Return `event.{tenant}.service.{deviceId}.{called|replied}`."""
    return f"event.{tenant}.service.{device_id}.{change}"


def task_event(tenant: str, task_id: int, change: str) -> str:
    """Return `event.{tenant}.task.{taskId}.{created|finished}`."""
    return f"event.{tenant}.task.{task_id}.{change}"


def alarm_event(tenant: str, device_id: int, change: str) -> str:
    """Return `event.{tenant}.alarm.{deviceId}.{raised|cleared|claimed}`."""
    return f"event.{tenant}.alarm.{device_id}.{change}"


def alarm_check_event(tenant: str, device_id: object) -> str:
    """Return `event.{tenant}.look.{deviceId}`: a request to evaluate alarm rules."""
    return f"event.{tenant}.look.{device_id}"


def auth_event(tenant: str, change: str) -> str:
    """Return `event.{tenant}.auth.{object}.{action}`."""
    return f"event.{tenant}.auth.{change}"


def workflow_event(tenant: str, flow_id: int, change: str) -> str:
    """Return `event.{tenant}.workflow.{flowId}.finished`."""
    return f"event.{tenant}.workflow.{flow_id}.{change}"


def dead_uplink_subject(sn: str) -> str:
    """Return `dead.uplink.{sn}`: a rejected message of a device."""
    return f"dead.uplink.{sn}"


def wakeup_subject(service: str) -> str:
    """Return `wakeup.{service}`: a process of a service has given its loops new work."""
    return f"wakeup.{service}"


EXTERNAL_TOPICS = "beaver-iot.*.>"
"""Messages of external MQTT clients (not devices) to flows."""


def external_topics(access_key: str) -> str:
    """Return `beaver-iot.{access key}.>`: messages of clients with a credential of a tenant."""
    return f"beaver-iot.{access_key}.>"


def split_external_subject(subject: str) -> tuple[str, str]:
    """Return the access key and the MQTT topic of a message of an external MQTT client.

    In a subject, nats-server replaces a topic separator by a dot, a dot by two slashes, and an
    empty level by one slash.
    """
    _, access_key, rest = subject.split(".", 2)
    levels = ("" if level == "/" else level.replace("//", ".") for level in rest.split("."))
    return access_key, "/".join(levels)


MAX_FILTERED_TENANTS = 16
"""Maximum tenants whose events a consumer selects, as nats-server compares all pairs of filters."""
UNUSED_EVENT_SUBJECT = "event.none"
"""A subject of the stream `EVENTS` that no message has."""


def event_filters(tenants: Collection[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """Return filters for the events of tenants, or of all tenants if there are many.

    `patterns` begin with `event.*.`.
    """
    if len(tenants) > MAX_FILTERED_TENANTS:
        return tuple(patterns)
    return (
        *(pattern.replace("*", tenant, 1) for tenant in sorted(tenants) for pattern in patterns),
        UNUSED_EVENT_SUBJECT,
    )
