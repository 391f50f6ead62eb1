"""The limits of a tenant and of its principals: `rpc.auth.get_limits`.

These defaults are valid for every tenant. The operator can change them for the platform
(`THINGWAY_TENANT_LIMITS`) and for a tenant (`thingway tenant limits`). A principal is an
application, a device or a user. Requests beyond a limit are rejected and counted.
"""

from typing import Annotated, Any

import msgspec

GET_LIMITS = "rpc.auth.get_limits"
LARGEST_FILE = 10 * 1024**2
"""Bytes of an uploaded picture."""
LARGEST_LIBRARY = 5 * 1024**2
"""Bytes of an uploaded ZIP of device templates."""

Most = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class Limits(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The limits of a tenant; `each_…` limits a single principal."""

    requests: Most = 1024
    """Concurrent HTTP requests, without long polls."""
    each_requests: Most = 256
    polls: Most = 20_000
    """HTTP requests that wait for commands (`?wait=`)."""
    each_polls: Most = 4
    websockets: Most = 5_000
    each_websockets: Most = 100
    websocket_keys: Most = 1_000_000
    """Entity keys that open WebSockets subscribe to, counted per socket."""
    each_websocket_keys: Most = 100_000
    connections: Most = 1_000_000
    """Open MQTT and NATS connections."""
    each_connections: Most = 16
    messages: Most = 50_000
    """Reports, events and replies of its devices per second, over every protocol."""
    each_messages: Most = 1_000
    """Per device; a burst may have ten times as many."""
    message_bytes: Most = 64 * 1024**2
    """Bytes of these per second."""
    each_message_bytes: Most = 4 * 1024**2
    event_bytes: Most = 1024**4
    """Bytes of these per day: each becomes an event on `EVENTS`."""
    retained_event_bytes: Most = 8 * 1024**3
    """Bytes of events that `EVENTS` retains; fewer while tenants together fill the stream."""
    dead_bytes: Most = 16 * 1024**2
    """Bytes of rejected messages in `DEAD` per day; the rest is only counted."""
    paths: Most = 500
    """Distinct paths that a device of the open product may have."""
    flows: Most = 10_000
    key_flows: Most = 1_000
    """Flows that listen to the same entity key."""
    runs: Most = 64
    """Concurrent runs of flows."""
    each_runs: Most = 32
    """Per flow."""
    waiting_runs: Most = 10_000
    """Runs of flows that wait for their turn."""
    each_waiting_runs: Most = 2_000
    history_days: Most = 20_000
    """Days for which history is kept, if the platform keeps it as long."""
    history_rows: Most = 10_000_000_000
    """Reports that are kept."""
    devices: Most = 10_000_000
    records: Most = 100_000
    """Records of each kind that users and applications create: products, RPS records, custom
    entities, dashboards, resources, alarm rules, menus."""
    resource_bytes: Most = 1024**3
    """Bytes of the files that users uploaded."""
    device_rules: Most = 100
    """Alarm rules of a device, in addition to those of its product."""
    product_rules: Most = 100
    """Alarm rules of a product."""
    users: Most = 10_000
    roles: Most = 1_000
    applications: Most = 1_000
    consumers: Most = 1_000
    """Durable consumers of events: one for each application that may read events."""


class GetLimits(msgspec.Struct):
    """`get_limits` of a tenant."""

    tenant: str


class SetLimits(msgspec.Struct):
    """`set_limits`: change limits of a tenant; null restores the platform's default."""

    tenant: str
    limits: dict[str, int | None]


class TenantLimits(msgspec.Struct):
    """Answer of both: the effective limits, and those that differ from the platform's, by name."""

    limits: Limits
    own: dict[str, Any] = {}


class AskUse(msgspec.Struct, frozen=True):
    """`use.ask`, to every process: the current usage of a tenant and of one principal.

    Each process answers with a JSON object of its share: numbers by the name of the limit.
    """

    tenant: str
    kind: str
    """Kind of the principal: `application`, `device` or `user`."""
    subject: str
    """Application id, device SN or user id."""
