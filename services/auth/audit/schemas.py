"""An audit entry, as it is stored and published."""

from typing import Any

import msgspec


class Subject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What was changed: `user`, `role`, `menu`, `application`, `tenant`, `session`."""

    type: str
    id: str
    name: str = ""


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """One change as its author tells it; `before` and `after` never have secrets."""

    action: str
    """`created`, `updated`, `deleted`, `password_changed`, …"""
    subject: Subject
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
