"""What a tenant, and each principal of it, may use at most: `rpc.auth.get_limits`.

The defaults below hold for everybody; the operator changes them for the platform
(`THINGWAY_TENANT_LIMITS`) and for one tenant (`thingway tenant limits`). A principal is one
application, device or user. Whoever goes beyond is refused alone, and counted.
"""

from typing import Annotated, Any

import msgspec

GET_LIMITS = "rpc.auth.get_limits"
LARGEST_FILE = 10 * 1024**2
"""Bytes of a picture that people upload."""
LARGEST_LIBRARY = 5 * 1024**2
"""Bytes of a ZIP of device templates that people upload."""

Most = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class Limits(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The limits of a tenant. `each_…` is of one principal of it."""

    requests: Most = 1024
    """HTTP requests in hand at once, long polls not counted."""
    each_requests: Most = 256
    polls: Most = 20_000
    """HTTP requests that wait for commands (`?wait=`)."""
    each_polls: Most = 4
    websockets: Most = 5_000
    each_websockets: Most = 100
    websocket_keys: Most = 1_000_000
    """Entity keys that open WebSockets subscribe to, counted by socket."""
    each_websocket_keys: Most = 100_000
    connections: Most = 1_000_000
    """Open MQTT and NATS connections."""
    each_connections: Most = 16
    messages: Most = 50_000
    """Reports, events and replies of its devices, per second, over every protocol."""
    each_messages: Most = 1_000
    """Of one device. Ten times as many may come at once."""
    message_bytes: Most = 64 * 1024**2
    """Bytes of these, per second."""
    each_message_bytes: Most = 4 * 1024**2
    event_bytes: Most = 1024**4
    """Bytes of these per day: each becomes an event on `EVENTS`."""
    retained_event_bytes: Most = 8 * 1024**3
    """Bytes of events that `EVENTS` retains, and fewer while tenants together fill the stream."""
    dead_bytes: Most = 16 * 1024**2
    """Bytes of refused messages that are kept in `DEAD` per day; of more only the count."""
    paths: Most = 500
    """Different paths that one device of the open product may have."""
    flows: Most = 10_000
    key_flows: Most = 1_000
    """Flows that listen to one entity key."""
    runs: Most = 64
    """Runs of flows that go on at once."""
    each_runs: Most = 32
    """Of one flow."""
    waiting_runs: Most = 10_000
    """Runs of flows that wait for their turn."""
    each_waiting_runs: Most = 2_000
    history_days: Most = 20_000
    """Days that history is kept, where the platform keeps it as long."""
    history_rows: Most = 10_000_000_000
    """Reports that are kept."""
    devices: Most = 10_000_000
    records: Most = 100_000
    """Of each kind of what people and applications create: products, RPS records, custom entities,
    dashboards, resources, alarm rules, menus."""
    resource_bytes: Most = 1024**3
    """Bytes of the files that people have uploaded."""
    device_rules: Most = 100
    """Alarm rules of one device, besides those of its product."""
    product_rules: Most = 100
    """Alarm rules of one product."""
    users: Most = 10_000
    roles: Most = 1_000
    applications: Most = 1_000
    consumers: Most = 1_000
    """Durable consumers of events: one for each application that may read events."""


class GetLimits(msgspec.Struct):
    """`get_limits`: of one tenant."""

    tenant: str


class SetLimits(msgspec.Struct):
    """`set_limits`: change some limits of a tenant; null makes one the platform's default again."""

    tenant: str
    limits: dict[str, int | None]


class TenantLimits(msgspec.Struct):
    """Answer of both: the limits that hold, and those that are the tenant's own, by name."""

    limits: Limits
    own: dict[str, Any] = {}


class AskUse(msgspec.Struct, frozen=True):
    """`use.ask`, to every process: what a tenant, and one principal of it, use at the moment.

    Each answers with a JSON object of its part: numbers by the name of the limit.
    """

    tenant: str
    kind: str
    """Of the principal: `application`, `device` or `user`."""
    subject: str
    """Application id, device SN or user id."""
