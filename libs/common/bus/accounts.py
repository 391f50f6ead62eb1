"""The accounts of nats-server, and the subjects that `gateway-bus` relays.

`gateway-bus` repeats each subject of the account `OUTSIDE` under `relay.` (docs/decisions/0020).
nats-server checks the subjects that a client may publish to, but not the reply subject. External
clients may therefore not send requests to JetStream or to a service directly. `gateway-bus`
receives the request, checks its reply subject, and repeats it unchanged on a subject that only
`gateway-bus` may use.
"""

from libs.common.bus.streams import EVENTS
from libs.common.contracts.integrations import (
    EXTERNAL_OPERATIONS,
    announce_subject,
    device_subject,
    integration_user,
)

PLATFORM_ACCOUNT = "THINGWAY"
"""The account of JetStream, the services, and devices that connect with MQTT."""
EXTERNAL_ACCOUNT = "OUTSIDE"
"""The account of all other external connections: devices, applications, integrations on NATS."""
LOGIN_ACCOUNTS = (PLATFORM_ACCOUNT, EXTERNAL_ACCOUNT)
"""The accounts that external connections are assigned to."""
MAX_MQTT_SUBSCRIPTIONS = 100
"""Limit per MQTT connection; a subscription with QoS 1 counts twice."""
MAX_SUBSCRIPTIONS_PER_EXTERNAL_CONNECTION = 1000
"""Limit per connection in `OUTSIDE`."""

APPLICATION_PREFIX = "app."


def application_user(client_id: str) -> str:
    """Return the NATS user of an application; the dot distinguishes it from any SN."""
    return f"{APPLICATION_PREFIX}{client_id}"


def inbox_prefix(user: str) -> str:
    """Return the prefix of the reply subjects of a NATS user."""
    return f"_INBOX.{user}"


def device_inbox_prefix(sn: str) -> str:
    """Return the prefix of the reply subjects of a device.

    It is below `sn.`, because SNs are chosen externally: a device with the SN `auth` must not
    receive the replies to the service `auth`.
    """
    return inbox_prefix(f"sn.{sn}")


RELAYED_STREAM = EVENTS
"""The stream that applications read."""
_API = "$JS.API.CONSUMER"

UPLINK_SUBJECTS = "thing.*.up.*"
PULL_SUBJECT = f"{_API}.MSG.NEXT.{RELAYED_STREAM}.*"
CONSUMER_SUBJECTS = (f"{_API}.INFO.{RELAYED_STREAM}.*", f"{_API}.DELETE.{RELAYED_STREAM}.*")
CREATE_CONSUMER_SUBJECT = f"{_API}.CREATE.{RELAYED_STREAM}.*.>"
ACK_SUBJECTS = f"$JS.ACK.{RELAYED_STREAM}.>"
INTEGRATION_SUBJECTS = (
    announce_subject("*"),
    *(device_subject("*", operation) for operation in EXTERNAL_OPERATIONS),
)

RELAYED_SUBJECTS = (
    UPLINK_SUBJECTS,
    PULL_SUBJECT,
    *CONSUMER_SUBJECTS,
    CREATE_CONSUMER_SUBJECT,
    ACK_SUBJECTS,
    *INTEGRATION_SUBJECTS,
)
"""All relayed subjects."""

EXTERNAL_INBOXES = tuple(
    f"{prefix}.>"
    for prefix in (
        device_inbox_prefix("*"),
        inbox_prefix(application_user("*")),
        inbox_prefix(integration_user("*")),
    )
)
"""The reply subjects of devices, applications and integrations, each below its own user."""

MAX_PULL_SECONDS = 300
"""Seconds that a request for events may stay open."""

DISABLED_API_TARGET = "nowhere.>"
"""The target of the JetStream API of `OUTSIDE`: nats-server offers this API in every account and
answers to any reply subject, unless the account imports another API."""


def relay_subject(subject: str) -> str:
    """Return the subject on which `gateway-bus` relays `subject`."""
    return f"relay.{subject}"
