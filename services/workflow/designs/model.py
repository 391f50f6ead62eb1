"""Flows as they are kept. No I/O."""

import msgspec


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow with its newest design."""

    id: int
    tenant: str
    name: str
    remark: str
    enabled: bool
    version: int
    """Of the newest design, from 1; older ones are kept."""
    design: str
    """`design_data`, as it was saved."""
    user_id: int | None
    """Who made it."""
    created_at: int
    """ms."""
    updated_at: int
