"""What passes between the logic of products and their store."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredTsl:
    """A version's document: JSON of the normalised TSL, and its SHA-256 in hex."""

    version: str
    document: bytes
    hash: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A product as its `PUT` wants it."""

    tenant: str
    model: str
    name: str
    sn_prefixes: list[str]
    device_type: str
    tsl: StoredTsl
    history_days: int | None
    marks: list[str]
    """What its members are numbered by (`services.device.members.registry`)."""
