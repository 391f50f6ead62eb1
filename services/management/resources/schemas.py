"""Resources in requests and answers, and as stored."""

from datetime import datetime
from typing import Annotated

import msgspec

from libs.common.store.mongo import Stored

UPLOAD_MINUTES = 15
"""Minutes for which an upload URL can be used."""
LONGEST_MINUTES = 360
PREFIX = "/resource/files/"
"""Prefix of the path of a resource."""

FileName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=255,
        pattern=r'^[^<>:"/\\|?*\x00-\x1f\x7f]+$',
        description='Must not contain <>:"/\\|?* or control characters',
    ),
]


class AnnounceUpload(msgspec.Struct):
    """Body of `POST /resource/upload-config`.

    A resource without references is deleted after the given minutes, at least 15.
    """

    file_name: FileName
    temp_resource_live_minutes: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_MINUTES)] | None = None


class AnnouncedUpload(msgspec.Struct):
    """Answer: the URL to upload the file once, and its future URL."""

    upload_url: str
    resource_url: str
    key: str


class Ticket(msgspec.Struct, frozen=True):
    """The encrypted content of an upload URL."""

    tenant: str
    key: str
    name: str
    minutes: int
    until: int
    """ms."""


class Resource(Stored, frozen=True, kw_only=True):
    """A stored file; its id is its key."""

    id: str
    tenant: str
    name: str
    type: str
    """Media type, detected from the content."""
    content: bytes = b""
    size: int
    """Bytes of the content."""
    used_by: tuple[int, ...] = ()
    """Dashboards and canvases that refer to it."""
    created_at: datetime
    expires_at: datetime | None = None
    """When it is deleted, unless something refers to it by then."""
