"""NATS permissions of external connections, as pure functions of their identity.

Devices over MQTT use the account of JetStream, because MQTT can set neither a reply subject nor a
header. All other connections use the account `OUTSIDE`, where only `gateway-bus` receives their
messages (docs/decisions/0020).

Over NATS, each identity receives replies below its inbox prefix
(`libs.common.bus.accounts.inbox_prefix`).
"""

import msgspec

from libs.common.bus import EVENTS
from libs.common.bus.accounts import (
    EXTERNAL_ACCOUNT,
    PLATFORM_ACCOUNT,
    application_user,
    device_inbox_prefix,
    inbox_prefix,
)
from libs.common.bus.subjects import (
    external_topics,
    is_token,
    partitioned_uplink_subject,
    uplink_subject,
)
from libs.common.contracts.integrations import (
    EXTERNAL_OPERATIONS,
    announce_subject,
    device_subject,
    integration_user,
)

DEVICE_PUBLISH_CHANNELS = ("report", "event", "reply")
"""Last parts of the subjects that a device may publish to."""
MAX_CLIENTS_PER_ACCESS_KEY = 64
"""Maximum MQTT client ids per access key. As many connections are allowed, even if the limit
`eachConnections` is lower."""


class InvalidIdentityError(ValueError):
    """An SN, id, access key or tenant that is not one token of a NATS subject."""


class Permissions(msgspec.Struct, frozen=True):
    """Subjects that a connection may publish to and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    account: str = EXTERNAL_ACCOUNT
    """The connection's account in nats-server."""
    answers: bool = False
    """Whether the connection may respond once to each received request, within a minute."""


class Admission(msgspec.Struct, frozen=True):
    """An authorized connection: its public name and its permissions."""

    name: str
    permissions: Permissions
    credential: str
    """Short hash of the key, secret or certificate serial of the login."""
    tenant: str = ""
    """The tenant of the login; empty for an integration, which serves all tenants."""
    shared: bool = False
    """Whether several clients, up to `MAX_CLIENTS_PER_ACCESS_KEY`, use the same login."""


def _require_subject_token(text: str, name: str) -> str:
    if not is_token(text):
        raise InvalidIdentityError(f"{name} {text!r} must be one token of a NATS subject")
    return text


def device_permissions(sn: str, *, mqtt: bool) -> Permissions:
    """Return the permissions of a device: to report and to receive its commands.

    - `thing.{sn}.down` in addition to `thing.{sn}.down.>`: the MQTT filter `thing/{sn}/down/#` also
      matches its parent level, for which nats-server makes a second subscription.
    - `uplink.*.{sn}.>`, over MQTT only: nats-server checks the mapped subject.
    - `$MQTT.sub.>`, over MQTT only: the delivery subject of a subscription of QoS 1. nats-server
      generates its last token randomly, so the permission cannot be narrower. An MQTT client cannot
      subscribe to it; a client of plain NATS could, and would receive all commands of QoS 1.
    - The device's inbox, over NATS only, for devices that want JetStream to acknowledge messages.

    Raises `InvalidIdentityError` if `sn` is not one plain token.
    """
    sn = _require_subject_token(sn, "the SN")
    mapped = [partitioned_uplink_subject(sn, channel, "*") for channel in DEVICE_PUBLISH_CHANNELS]
    answers = "$MQTT.sub.>" if mqtt else f"{device_inbox_prefix(sn)}.>"
    return Permissions(
        publish=(
            *(uplink_subject(sn, channel) for channel in DEVICE_PUBLISH_CHANNELS),
            *(mapped if mqtt else ()),
        ),
        subscribe=(f"thing.{sn}.down", f"thing.{sn}.down.>", answers),
        account=PLATFORM_ACCOUNT if mqtt else EXTERNAL_ACCOUNT,
    )


def mqtt_client_permissions(access_key: str) -> Permissions:
    """Return the permissions of an MQTT client: topics below its access key.

    Raises `InvalidIdentityError` if the access key is not one plain token.
    """
    topics = external_topics(_require_subject_token(access_key, "the access key"))
    return Permissions(
        publish=(topics,),
        subscribe=(topics, "$MQTT.sub.>"),
        account=PLATFORM_ACCOUNT,
    )


def application_permissions(client_id: str, tenant: str) -> Permissions:
    """Return the permissions of an application: to read its tenant's events.

    It reads events live (`event.{tenant}.>`) or through one durable pull consumer on `EVENTS`,
    which is named after the client id and has exactly one filter. The filter is part of the
    creation subject, and nats-server rejects a request whose body differs from it. The older
    creation subjects (`…CONSUMER.DURABLE.CREATE.…`, and `…CREATE.…` without the filter) are not
    granted, because there the body chooses the filter.

    Raises `InvalidIdentityError` if an argument is not one plain token.
    """
    client_id = _require_subject_token(client_id, "the client id")
    tenant = _require_subject_token(tenant, "the tenant")
    consumer = f"{EVENTS}.{client_id}"
    return Permissions(
        publish=(
            f"$JS.API.CONSUMER.CREATE.{consumer}.event.{tenant}.>",
            f"$JS.API.CONSUMER.INFO.{consumer}",
            f"$JS.API.CONSUMER.DELETE.{consumer}",
            f"$JS.API.CONSUMER.MSG.NEXT.{consumer}",
            f"$JS.ACK.{consumer}.>",
        ),
        subscribe=(f"event.{tenant}.>", f"{inbox_prefix(application_user(client_id))}.>"),
    )


def integration_permissions(integration: str) -> Permissions:
    """Return the permissions of an integration: to announce, forward and respond.

    Every subject contains the id, so the integration cannot act for another one.

    Raises `InvalidIdentityError` if the id is not one plain token.
    """
    integration = _require_subject_token(integration, "the integration")
    return Permissions(
        publish=(
            announce_subject(integration),
            *(device_subject(integration, operation) for operation in EXTERNAL_OPERATIONS),
        ),
        subscribe=(
            f"rpc.integration.{integration}.>",
            f"{inbox_prefix(integration_user(integration))}.>",
        ),
        answers=True,
    )
