"""The subjects of the bus, in one place: nobody else writes one by hand."""


def is_token(text: str) -> bool:
    """Tell whether `text` is one plain token of a subject, and of an MQTT topic level.

    Separators and wildcards of either protocol would widen a permission (`thing.*.up.>`),
    blanks and control characters would break the wire protocol.
    """
    return bool(text) and text.isascii() and text.isprintable() and not set(text) & set(" .*>/+#$")


def up(sn: str, channel: str) -> str:
    """`thing.{sn}.up.{report|event|reply}`: a device speaks."""
    return f"thing.{sn}.up.{channel}"


def partitioned(sn: str, channel: str, partition: object) -> str:
    """`uplink.{partition}.{sn}.{channel}`: what the server makes of `up` with partitions."""
    return f"uplink.{partition}.{sn}.{channel}"


def down_command(sn: str) -> str:
    """`thing.{sn}.down.command`: a device is spoken to."""
    return f"thing.{sn}.down.command"


def device_event(tenant: str, device_id: int, what: str) -> str:
    """`event.{tenant}.device.{id}.{added|updated|deleted|online|...|reported|...}`."""
    return f"event.{tenant}.device.{device_id}.{what}"


def thing_event(tenant: str, thing_id: int, what: str) -> str:
    """`event.{tenant}.thing.{id}.{reported|rejected}`: of what is no device."""
    return f"event.{tenant}.thing.{thing_id}.{what}"


def service_event(tenant: str, device_id: int, what: str) -> str:
    """`event.{tenant}.service.{deviceId}.{called|replied}`."""
    return f"event.{tenant}.service.{device_id}.{what}"


def task_event(tenant: str, task_id: int, what: str) -> str:
    """`event.{tenant}.task.{taskId}.{created|finished}`."""
    return f"event.{tenant}.task.{task_id}.{what}"


def alarm_event(tenant: str, device_id: int, what: str) -> str:
    """`event.{tenant}.alarm.{deviceId}.{raised|cleared|claimed}`."""
    return f"event.{tenant}.alarm.{device_id}.{what}"


def look_event(tenant: str, device_id: object) -> str:
    """`event.{tenant}.look.{deviceId}`: of `device` to itself, rules have to be looked at."""
    return f"event.{tenant}.look.{device_id}"


def auth_event(tenant: str, what: str) -> str:
    """`event.{tenant}.auth.{what}`."""
    return f"event.{tenant}.auth.{what}"


def workflow_event(tenant: str, flow_id: int, what: str) -> str:
    """`event.{tenant}.workflow.{flowId}.finished`."""
    return f"event.{tenant}.workflow.{flow_id}.{what}"


def dead_uplink(sn: str) -> str:
    """`dead.uplink.{sn}`: what a device said and we refused."""
    return f"dead.uplink.{sn}"


OUTSIDE_TOPICS = "beaver-iot.*.>"
"""What MQTT clients outside, that are no devices, say to flows."""


def outside_topics(access_key: str) -> str:
    """`beaver-iot.{access key}.>`: what those say that log in with a credential of a tenant."""
    return f"beaver-iot.{access_key}.>"


def outside_topic(subject: str) -> tuple[str, str]:
    """The access key of such a subject, and the MQTT topic below it.

    nats-server writes a level's end as a dot, a dot as two slashes, and an empty level as one.
    """
    _, access_key, rest = subject.split(".", 2)
    levels = ("" if one == "/" else one.replace("//", ".") for one in rest.split("."))
    return access_key, "/".join(levels)
