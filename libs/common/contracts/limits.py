"""The limits of a tenant and of its principals: `rpc.auth.get_limits`.

These defaults are valid for every tenant. The operator can change them for the platform
(`THINGWAY_TENANT_LIMITS`) and for a tenant (`thingway tenant limits`). A principal is an
application, a device or a user. Requests beyond a limit are rejected and counted.
"""

from typing import Annotated, Any

import msgspec

GET_LIMITS = "rpc.auth.get_limits"
MAX_PICTURE_BYTES = 10 * 1024**2
"""Maximum bytes of an uploaded picture."""
MAX_LIBRARY_BYTES = 5 * 1024**2
"""Maximum bytes of an uploaded ZIP of device templates."""

LimitValue = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class Limits(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The limits of a tenant; `each_…` limits a single principal."""

    requests: LimitValue = 1024
    """Concurrent HTTP requests, without long polls."""
    each_requests: LimitValue = 256
    polls: LimitValue = 20_000
    """HTTP requests that wait for commands (`?wait=`)."""
    each_polls: LimitValue = 4
    websockets: LimitValue = 5_000
    each_websockets: LimitValue = 100
    websocket_keys: LimitValue = 1_000_000
    """Entity keys that open WebSockets subscribe to, counted per socket."""
    each_websocket_keys: LimitValue = 100_000
    connections: LimitValue = 1_000_000
    """Open MQTT and NATS connections. This limit is not enforced; `each_connections` is."""
    each_connections: LimitValue = 16
    messages: LimitValue = 50_000
    """Reports, events and replies of the tenant's devices per second, over every protocol."""
    each_messages: LimitValue = 1_000
    """Messages of one device per second; a burst may have ten times as many."""
    message_bytes: LimitValue = 64 * 1024**2
    """Bytes of the messages of the tenant's devices per second."""
    each_message_bytes: LimitValue = 4 * 1024**2
    event_bytes: LimitValue = 1024**4
    """Bytes of the messages of the tenant's devices per day: each message becomes an event."""
    retained_event_bytes: LimitValue = 8 * 1024**3
    """Bytes of events that `EVENTS` retains; fewer while tenants together fill the stream."""
    dead_bytes: LimitValue = 16 * 1024**2
    """Bytes of rejected messages in `DEAD` per day; the rest is only counted."""
    paths: LimitValue = 500
    """Property paths of one device of the product `generic` that get an entity."""
    flows: LimitValue = 10_000
    key_flows: LimitValue = 1_000
    """Flows that listen to the same entity key."""
    runs: LimitValue = 64
    """Concurrent runs of flows."""
    each_runs: LimitValue = 32
    """Concurrent runs of one flow."""
    waiting_runs: LimitValue = 10_000
    """Runs of flows that wait for their turn."""
    each_waiting_runs: LimitValue = 2_000
    history_days: LimitValue = 20_000
    """Days for which history is kept, if the platform keeps it as long."""
    history_rows: LimitValue = 10_000_000_000
    """Reports that history keeps."""
    devices: LimitValue = 10_000_000
    records: LimitValue = 100_000
    """Records of each kind that users and applications create: products, RPS records, custom
    entities, dashboards, resources, alarm rules, menus."""
    resource_bytes: LimitValue = 1024**3
    """Bytes of the files that users uploaded."""
    device_rules: LimitValue = 100
    """Alarm rules of a device, in addition to those of its product."""
    product_rules: LimitValue = 100
    """Alarm rules of a product."""
    users: LimitValue = 10_000
    roles: LimitValue = 1_000
    applications: LimitValue = 1_000
    consumers: LimitValue = 1_000
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
