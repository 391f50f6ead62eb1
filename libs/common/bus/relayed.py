"""What `gateway-bus` passes on from the account `OUTSIDE`: each subject again, under `relay.`.

nats-server checks what a client may publish, never where it asks the answer to go. So nobody
outside may ask JetStream or a service directly: `gateway-bus` hears the question, looks at its
reply subject and asks it again, with the very same one, on a subject that only it may use.
"""

from libs.common.bus.accounts import application_user, device_inbox, inbox
from libs.common.bus.streams import EVENTS
from libs.common.contracts.integrations import (
    OUTSIDE_MAY_TELL,
    announce_subject,
    login_of,
    tell_subject,
)

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
