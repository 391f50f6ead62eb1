"""Resources on the wire, and as kept."""

from datetime import datetime
from typing import Annotated

import msgspec

from libs.common.store.mongo import Stored

UPLOAD_MINUTES = 15
"""How long an upload URL can be used."""
LONGEST_MINUTES = 360
PREFIX = "/resource/files/"
"""What the path of a resource begins with."""

FileName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=255,
        pattern=r'^[^<>:"/\\|?*\x00-\x1f\x7f]+$',
        description='None of <>:"/\\|?* and no control characters',
    ),
]


class AnnounceUpload(msgspec.Struct):
    """Body of `POST /resource/upload-config`.

    A resource that nothing names for so many minutes, 15 at least, is deleted.
    """

    file_name: FileName
    temp_resource_live_minutes: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_MINUTES)] | None = None


class AnnouncedUpload(msgspec.Struct):
    """Answer: where to PUT the file, once, and where it will be."""

    upload_url: str
    resource_url: str
    key: str


class Ticket(msgspec.Struct, frozen=True):
    """What an upload URL says, sealed."""

    tenant: str
    key: str
    name: str
    minutes: int
    until: int
    """ms."""


class Resource(Stored, frozen=True, kw_only=True):
    """A file as it is kept; its id is its key."""

    id: str
    tenant: str
    name: str
    type: str
    """Its media type, as its content shows."""
    content: bytes = b""
    size: int
    """Bytes of the content."""
    used_by: tuple[int, ...] = ()
    """Dashboards and canvases that name it."""
    created_at: datetime
    expires_at: datetime | None = None
    """When it is deleted, unless something names it by then."""
