"""The limits of a tenant and of its principals: `rpc.auth.get_limits`.

These defaults are valid for every tenant. The operator can change them for the platform
(`THINGWAY_TENANT_LIMITS`) and for a tenant (`thingway tenant limits`). A principal is an
application, a device or a user. Requests beyond a limit are rejected and counted.
"""

from typing import Annotated, Any

import msgspec

GET_LIMITS = "rpc.auth.get_limits"
LARGEST_FILE = 10 * 1024**2
"""Maximum bytes of an uploaded picture."""
LARGEST_LIBRARY = 5 * 1024**2
"""Maximum bytes of an uploaded ZIP of device templates."""

Limit = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class Limits(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The limits of a tenant; `each_…` limits a single principal."""

    requests: Limit = 1024
    """Concurrent HTTP requests, without long polls."""
    each_requests: Limit = 256
    polls: Limit = 20_000
    """HTTP requests that wait for commands (`?wait=`)."""
    each_polls: Limit = 4
    websockets: Limit = 5_000
    each_websockets: Limit = 100
    websocket_keys: Limit = 1_000_000
    """Entity keys that open WebSockets subscribe to, counted per socket."""
    each_websocket_keys: Limit = 100_000
    connections: Limit = 1_000_000
    """Open MQTT and NATS connections."""
    each_connections: Limit = 16
    messages: Limit = 50_000
    """Reports, events and replies of its devices per second, over every protocol."""
    each_messages: Limit = 1_000
    """Messages of one device per second; a burst may have ten times as many."""
    message_bytes: Limit = 64 * 1024**2
    """Bytes of the messages of its devices per second."""
    each_message_bytes: Limit = 4 * 1024**2
    event_bytes: Limit = 1024**4
    """Bytes of the messages of its devices per day, because each becomes an event on `EVENTS`."""
    retained_event_bytes: Limit = 8 * 1024**3
    """Bytes of events that `EVENTS` retains; fewer while tenants together fill the stream."""
    dead_bytes: Limit = 16 * 1024**2
    """Bytes of rejected messages in `DEAD` per day; the rest is only counted."""
    paths: Limit = 500
    """Property paths of one device of the product `generic` that get an entity."""
    flows: Limit = 10_000
    key_flows: Limit = 1_000
    """Flows that listen to the same entity key."""
    runs: Limit = 64
    """Concurrent runs of flows."""
    each_runs: Limit = 32
    """Concurrent runs of one flow."""
    waiting_runs: Limit = 10_000
    """Runs of flows that wait for their turn."""
    each_waiting_runs: Limit = 2_000
    history_days: Limit = 20_000
    """Days for which history is kept, if the platform keeps it as long."""
    history_rows: Limit = 10_000_000_000
    """Reports that history keeps."""
    devices: Limit = 10_000_000
    records: Limit = 100_000
    """Records of each kind that users and applications create: products, RPS records, custom
    entities, dashboards, resources, alarm rules, menus."""
    resource_bytes: Limit = 1024**3
    """Bytes of the files that users uploaded."""
    device_rules: Limit = 100
    """Alarm rules of a device, in addition to those of its product."""
    product_rules: Limit = 100
    """Alarm rules of a product."""
    users: Limit = 10_000
    roles: Limit = 1_000
    applications: Limit = 1_000
    consumers: Limit = 1_000
    """Durable consumers of events: one for each application that may read events."""


class GetLimits(msgspec.Struct):
    """`get_limits`: return the limits of a tenant."""

    tenant: str


class SetLimits(msgspec.Struct):
    """`set_limits`: change limits of a tenant; null restores the platform's default."""

    tenant: str
    limits: dict[str, int | None]


class TenantLimits(msgspec.Struct):
    """Answer of `get_limits` and `set_limits`: the effective limits.

    `own` has the limits that differ from the platform's, by name.
    """

    limits: Limits
    own: dict[str, Any] = {}


class UsageRequest(msgspec.Struct, frozen=True):
    """`use.ask`, to every process: the current usage of a tenant and of one principal.

    Each process answers with a JSON object of its share: numbers by the name of the limit.
    """

    tenant: str
    kind: str
    """Kind of the principal: `application`, `device` or `user`."""
    subject: str
    """Application id, device SN or user id."""
