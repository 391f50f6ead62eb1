"""Operations on uploaded files.

An upload URL is an encrypted ticket, so that nothing is stored before the upload. A file lives
longer than its ticket, so a second upload with a ticket finds the file's key in use.
"""

import re
import secrets
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

import msgspec

from libs.common.clock import now_ms
from libs.common.contracts.limits import LARGEST_LIBRARY
from libs.common.contracts.names import PART, ReadResource, ResourcePart
from libs.common.errors import InvalidInput, NotFound, TooLarge, UnsupportedMedia
from libs.common.http.streaming import PIECE
from libs.common.identity import Principal
from libs.common.identity.seal import Seal, SealBroken
from libs.common.scheduling import FairScheduler
from services.management.resources.schemas import (
    PREFIX,
    UPLOAD_MINUTES,
    AnnouncedUpload,
    AnnounceUpload,
    Resource,
    Ticket,
)
from services.management.resources.store import ResourceStore, keys_in

UPLOADS = "/resource/uploads/"
_CONTEXT = "upload of a resource"
_KEY_BYTES = 24
_MINUTE_MS = 60_000
FILES = 8
"""Files that are sent concurrently, half of them of one tenant. Each is in memory while it is
sent."""
NO_LIBRARY = "blueprint_library_resources_fetch_failed"
"""The error code of an invalid library of device templates, as consoles expect it."""

SVG = "image/svg+xml"
ZIP = "application/zip"
TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", SVG, ZIP)
_BEGINS = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"PK\x03\x04"), ZIP),
)
_SVG = re.compile(rb"<svg[\s>/]")
_LOOKED = 8192
"""Bytes at the beginning of a text in which the root of an SVG must occur."""


def type_of(content: bytes) -> str | None:
    """Return the media type; None unless it is a supported picture or a ZIP."""
    for begins, media_type in _BEGINS:
        if begins.match(content):
            return media_type
    return SVG if _is_svg(content[:_LOOKED]) else None


def _is_svg(text: bytes) -> bool:
    """Return whether the first element is `svg`; documents with entities are rejected."""
    text = text.removeprefix(b"\xef\xbb\xbf").lstrip()
    while text.startswith((b"<?", b"<!")):
        end = b"-->" if text.startswith(b"<!--") else b">"
        text = text.partition(end)[2].lstrip()
    return _SVG.match(text) is not None


class ResourceService:
    """The operations on resources."""

    def __init__(self, store: ResourceStore, seal: Seal) -> None:
        self._store = store
        self._seal = seal
        self._files = FairScheduler("files", FILES)

    def announce(self, user: Principal, wanted: AnnounceUpload) -> AnnouncedUpload:
        """Return the URLs of a file to upload."""
        key = secrets.token_urlsafe(_KEY_BYTES)
        ticket = Ticket(
            tenant=user.tenant,
            key=key,
            name=wanted.file_name,
            minutes=max(UPLOAD_MINUTES, wanted.temp_resource_live_minutes or 0),
            until=now_ms() + UPLOAD_MINUTES * _MINUTE_MS,
        )
        sealed = self._seal.seal(msgspec.json.encode(ticket).decode(), _CONTEXT)
        return AnnouncedUpload(UPLOADS + sealed.rstrip("="), PREFIX + key, key)

    async def upload(self, sealed: str, content: bytes) -> None:
        """Store the file of a ticket.

        Raises `InvalidInput` for an invalid, expired or used ticket, `UnsupportedMedia` unless it
        is a picture or a ZIP, `TooLarge`, `TooManyRequests`.
        """
        ticket = self._opened(sealed)
        media_type = type_of(content)
        if media_type is None:
            text = f"the file must be one of {', '.join(TYPES)}"
            library = ticket.name.lower().endswith(".zip")
            raise UnsupportedMedia(text, code=NO_LIBRARY if library else None)
        if media_type == ZIP and len(content) > LARGEST_LIBRARY:
            raise TooLarge(f"a ZIP must have at most {LARGEST_LIBRARY} bytes")
        now = datetime.now(UTC)
        resource = Resource(
            id=ticket.key,
            tenant=ticket.tenant,
            name=ticket.name,
            type=media_type,
            content=content,
            size=len(content),
            created_at=now,
            expires_at=now + timedelta(minutes=ticket.minutes),
        )
        if not await self._store.insert(resource):
            raise InvalidInput("was already used", field="ticket")

    async def read(self, resource: Resource) -> AsyncGenerator[bytes, None]:
        """Yield the content of a file; a tenant has only a few files in memory."""
        async with self._files.slot(resource.tenant):
            content = (await self.get(resource.id, whole=True)).content
            for start in range(0, len(content), PIECE):
                yield content[start : start + PIECE]

    async def get(self, key: str, *, whole: bool = False) -> Resource:
        """Return a file, without its content unless `whole`; raise `NotFound`."""
        found = await self._store.get(key, whole=whole)
        if found is None:
            raise NotFound("the resource does not exist", field="key")
        return found

    async def read_part(self, asked: ReadResource) -> ResourcePart:
        """Return a part of a file of the tenant; raise `NotFound`."""
        for key in keys_in([asked.url]):
            found = await self._store.get(key)
            if found is not None and found.tenant == asked.tenant:
                content = found.content[asked.offset : asked.offset + PART]
                return ResourcePart(found.name, found.type, content)
        raise NotFound("the resource does not exist", field="url")

    def _opened(self, sealed: str) -> Ticket:
        padding = "=" * (-len(sealed) % 4)
        try:
            text = self._seal.open(sealed + padding, _CONTEXT)
        except SealBroken as error:
            raise InvalidInput("is invalid", field="ticket") from error
        ticket = msgspec.json.decode(text, type=Ticket)
        if ticket.until <= now_ms():
            raise InvalidInput("has expired", field="ticket")
        return ticket
