"""RPS records on the wire."""

import msgspec

from services.device.things.schemas import Search


class SetProfile(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Body of `POST /rps/profile`."""

    sn: str
    profile_url: str


class SearchProfiles(Search):
    """Body of `POST /rps/search`."""


class RpsRecord(msgspec.Struct, rename="camel"):
    """Where a device of this SN finds its profile."""

    sn: str
    profile_url: str


class RpsPage(msgspec.Struct, rename="camel"):
    """One page of a search."""

    page_size: int
    page_number: int
    total: int
    content: list[RpsRecord]
