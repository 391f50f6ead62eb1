"""The principal: on whose behalf a request runs."""

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """What sort of caller a principal is."""

    APPLICATION = "application"
    """A third-party application of the device open API."""
    DEVICE = "device"
    """A device at `/ingest`, proven by its key."""
    USER = "user"
    """A person at the console."""


class Principal(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A caller, as the gateway proved it; stored in Redis under the hash of its token."""

    kind: Kind
    tenant: str
    subject: str
    """Application id, device SN or user id."""
    name: str = ""
    """For people and logs: application name or user e-mail."""
    family: str = ""
    """Token family: tokens that come from one another by refresh."""

    @property
    def application_id(self) -> int:
        """The id of the calling application."""
        return int(self.subject)
