"""Limits and their use on the wire, the same in both APIs; settings in the management API."""

import msgspec


class LimitUse(msgspec.Struct, omit_defaults=True):
    """A limit, and how much of it is used. `each…` is of one principal: who asks."""

    name: str
    limit: int
    """At most."""
    own: bool = False
    """Whether the operator set it for this tenant."""
    used: int | float | None = None
    """Now; absent where it is not counted."""


class EventPurge(msgspec.Struct):
    """The last purge of events that exceeded the tenant's share of `EVENTS`."""

    at: int
    """Time in ms."""
    share: int
    """Bytes that the tenant's events could take then."""
    events: int
    """Number of events that were purged before they expired, in all purges."""


class TenantUse(msgspec.Struct, omit_defaults=True):
    """The limits that hold for the caller."""

    tenant: str
    limits: list[LimitUse]
    event_purge: EventPurge | None = None
    """Absent when no purge is known."""


class TenantSettings(msgspec.Struct, kw_only=True):
    """`GET /tenant/settings`."""

    viewers_may_command: bool
    """Whether functions to view suffice to set values and call services."""
    notice: bool
    """Whether an upgrade turned `viewers_may_command` on, and no super-admin has set it since."""


class ChangeTenantSettings(msgspec.Struct, kw_only=True):
    """`PUT /tenant/settings`."""

    viewers_may_command: bool
