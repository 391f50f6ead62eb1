"""What a connection from outside may say and hear on the bus: pure functions of who it is.

Over MQTT devices stand in the account of JetStream: MQTT can set neither a reply subject nor a
header. Everybody else stands in `OUTSIDE`, where only `gateway-bus` hears what they say
(docs/decisions/0020).

Replies come to an inbox under a prefix of its own (`libs.common.bus.accounts.inbox`).
"""

import msgspec

from libs.common.bus import EVENTS
from libs.common.bus.accounts import ACCOUNT, OUTSIDE, application_user, device_inbox, inbox
from libs.common.bus.subjects import is_token, outside_topics, partitioned, up
from libs.common.contracts.integrations import (
    OUTSIDE_MAY_TELL,
    announce_subject,
    login_of,
    tell_subject,
)

CHANNELS = ("report", "event", "reply")
"""What a device may say."""
MOST_CLIENTS = 64
"""Connections with one credential of a tenant."""


class InvalidIdentityError(ValueError):
    """An SN, client id or tenant that would mean something else inside a NATS subject."""


class Permissions(msgspec.Struct, frozen=True):
    """Subjects a connection may publish and subscribe to; everything else is refused."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    account: str = OUTSIDE
    """The account of nats-server that it is put into."""
    answers: bool = False
    """May answer each request that it receives once, within a minute."""


class Admission(msgspec.Struct, frozen=True):
    """A connection that may come in, by the name that others see, and what it may do."""

    name: str
    permissions: Permissions
    credential: str
    """Which key or secret it came with."""
    tenant: str = ""
    """Whose it is; empty for an integration, which serves all."""
    shared: bool = False
    """Whether many clients come in with it: `MOST_CLIENTS`, and as many client ids."""


def _token(text: str, name: str) -> str:
    if not is_token(text):
        raise InvalidIdentityError(f"{name} {text!r} cannot be a token of a NATS subject")
    return text


def device_permissions(sn: str, *, mqtt: bool) -> Permissions:
    """Return what the device `sn` may do: report about itself, hear its own commands.

    - `thing.{sn}.down` beside `thing.{sn}.down.>`: an MQTT filter `thing/{sn}/down/#` also means
      its parent level, for which nats-server makes a second subscription.
    - `uplink.*.{sn}.>`, over MQTT only: nats-server looks at the subject that it has mapped.
    - `$MQTT.sub.>`, over MQTT only: the delivery subject of a subscription of QoS 1. Its last token
      is random and is made by the server, so it cannot be narrowed. An MQTT client cannot subscribe
      to it itself; a client of plain NATS could, and would hear every QoS 1 command there is.
    - Its inbox, over NATS only, for a device that wants its JetStream publish acknowledged.

    Raises `InvalidIdentityError` when `sn` is not one plain token.
    """
    sn = _token(sn, "the SN")
    mapped = [partitioned(sn, channel, "*") for channel in CHANNELS]
    answers = "$MQTT.sub.>" if mqtt else f"{device_inbox(sn)}.>"
    return Permissions(
        publish=(*(up(sn, channel) for channel in CHANNELS), *(mapped if mqtt else ())),
        subscribe=(f"thing.{sn}.down", f"thing.{sn}.down.>", answers),
        account=ACCOUNT if mqtt else OUTSIDE,
    )


def client_permissions(access_key: str) -> Permissions:
    """Return what an MQTT client of a tenant may do that is no device: speak below its own prefix.

    And hear what others say there. Raises `InvalidIdentityError` when the access key is not one
    plain token.
    """
    topics = outside_topics(_token(access_key, "the access key"))
    return Permissions(
        publish=(topics,),
        subscribe=(topics, "$MQTT.sub.>"),
        account=ACCOUNT,
    )


def application_permissions(client_id: str, tenant: str) -> Permissions:
    """Return what the application `client_id` of `tenant` may do: hear its tenant's events.

    Live (`event.{tenant}.>`), or through one durable pull consumer on `EVENTS` that is named
    exactly like the client id, with exactly one filter. The filter is part of the API subject of
    its creation and nats-server refuses a request whose body says otherwise; the older
    creation subjects (`…CONSUMER.DURABLE.CREATE.…`, and `…CREATE.…` without the filter) are not
    granted, for they would let the body choose the filter.

    Raises `InvalidIdentityError` when an argument is not one plain token.
    """
    client_id = _token(client_id, "the client id")
    tenant = _token(tenant, "the tenant")
    consumer = f"{EVENTS}.{client_id}"
    return Permissions(
        publish=(
            f"$JS.API.CONSUMER.CREATE.{consumer}.event.{tenant}.>",
            f"$JS.API.CONSUMER.INFO.{consumer}",
            f"$JS.API.CONSUMER.DELETE.{consumer}",
            f"$JS.API.CONSUMER.MSG.NEXT.{consumer}",
            f"$JS.ACK.{consumer}.>",
        ),
        subscribe=(f"event.{tenant}.>", f"{inbox(application_user(client_id))}.>"),
    )


def integration_permissions(integration: str) -> Permissions:
    """Return what the process that is `integration` may do: be asked, announce, tell of its own.

    Every subject ends with its id, so it speaks for no other one.

    Raises `InvalidIdentityError` when the id is not one plain token.
    """
    integration = _token(integration, "the integration")
    return Permissions(
        publish=(
            announce_subject(integration),
            *(tell_subject(integration, operation) for operation in OUTSIDE_MAY_TELL),
        ),
        subscribe=(f"rpc.integration.{integration}.>", f"{inbox(login_of(integration))}.>"),
        answers=True,
    )
