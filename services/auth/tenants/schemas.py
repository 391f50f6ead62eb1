"""Limits and their use on the wire, the same in both APIs."""

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


class TenantUse(msgspec.Struct):
    """The limits that hold for the caller."""

    tenant: str
    limits: list[LimitUse]
