"""The accounts of nats-server, and what `gateway-bus` passes on from one to the other.

`gateway-bus` repeats each subject of the account `OUTSIDE` under `relay.` (docs/decisions/0020).
nats-server checks what a client may publish, never where it asks the answer to go. So nobody
outside may ask JetStream or a service directly: `gateway-bus` hears the question, looks at its
reply subject and asks it again, with the very same one, on a subject that only it may use.
"""

from libs.common.bus.streams import EVENTS
from libs.common.contracts.integrations import (
    OUTSIDE_MAY_TELL,
    announce_subject,
    login_of,
    tell_subject,
)

ACCOUNT = "THINGWAY"
"""JetStream, the services, and the devices that speak MQTT."""
OUTSIDE = "OUTSIDE"
"""Every other connection from outside: devices, applications and integrations on plain NATS."""
ACCOUNTS = (ACCOUNT, OUTSIDE)
"""Those that connections from outside are put into."""
MQTT_SUBSCRIPTIONS = 100
"""Of one MQTT connection; one of QoS 1 is two."""
OUTSIDE_SUBSCRIPTIONS = 1000
"""Of one connection in `OUTSIDE`."""

APPLICATION_PREFIX = "app."


def application_user(client_id: str) -> str:
    """The name of an application's connections; the dot keeps it apart from every SN."""
    return f"{APPLICATION_PREFIX}{client_id}"


def inbox(user: str) -> str:
    """Where a user of the bus hears answers: the prefix of their subjects."""
    return f"_INBOX.{user}"


def device_inbox(sn: str) -> str:
    """The same of a device, below `sn.`.

    An SN is chosen outside, and a device called `auth` must not hear the replies to the service
    of that name.
    """
    return inbox(f"sn.{sn}")


STREAM = EVENTS
"""The stream that applications read."""
_API = "$JS.API.CONSUMER"

REPORTS = "thing.*.up.*"
PULL = f"{_API}.MSG.NEXT.{STREAM}.*"
CONSUMER = (f"{_API}.INFO.{STREAM}.*", f"{_API}.DELETE.{STREAM}.*")
CREATE = f"{_API}.CREATE.{STREAM}.*.>"
ACKS = f"$JS.ACK.{STREAM}.>"
TOLD = (announce_subject("*"), *(tell_subject("*", one) for one in OUTSIDE_MAY_TELL))

RELAYED = (REPORTS, PULL, *CONSUMER, CREATE, ACKS, *TOLD)
"""All of it."""

OUTSIDE_INBOXES = tuple(
    f"{prefix}.>"
    for prefix in (device_inbox("*"), inbox(application_user("*")), inbox(login_of("*")))
)
"""Where devices, applications and integrations hear answers, each below its own name."""

PULL_LIFE = 300
"""Seconds that one request for events may stay open."""

DEAD_END = "nowhere.>"
"""Where the JetStream API of `OUTSIDE` leads: every account has one, answered by the server itself
at any reply subject, unless the account imports another one."""


def relayed(subject: str) -> str:
    """Where `gateway-bus` passes on what was said on `subject`."""
    return f"relay.{subject}"
