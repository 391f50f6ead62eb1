"""Uploaded files, whose URLs are the only credential.

`resources`: `{_id, tenant, name, type, size, content, usedBy: [id], createdAt, expiresAt?}`.
`usedBy` are the dashboards and canvases that refer to the file. MongoDB deletes a file without
references at `expiresAt`.

An upload URL is an encrypted ticket, so that nothing is stored before the upload. A file lives
longer than its ticket, so a second upload with a ticket finds the file's key in use.
"""

import re
import secrets
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated
from urllib.parse import quote

import msgspec
from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from litestar.response import Stream

from libs.common.clock import now_ms
from libs.common.contracts.limits import MAX_LIBRARY_BYTES, MAX_PICTURE_BYTES
from libs.common.contracts.names import FILE_PART_BYTES, FilePart, ReadResource
from libs.common.errors import InvalidInput, NotFound, TooLarge, TooManyRequests, UnsupportedMedia
from libs.common.http import HttpRequest, RequestPrincipal, build_dependencies
from libs.common.http.console import get, post, put
from libs.common.http.guards import users
from libs.common.http.operations import route_operations
from libs.common.http.streaming import PIECE_BYTES
from libs.common.identity import Principal
from libs.common.identity.seal import Seal, SealBroken
from libs.common.limits.quota import RETRY_SECONDS, Quota
from libs.common.limits.tenants import LimitsCache, count_rejection
from libs.common.scheduling import FairScheduler
from libs.common.store.mongo import (
    Database,
    Document,
    DuplicateKey,
    Session,
    Stored,
    read_document,
    to_document,
)

UPLOAD_URL_MINUTES = 15
"""Minutes for which an upload URL can be used."""
MAX_UNUSED_MINUTES = 360
FILE_PATH_PREFIX = "/resource/files/"
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


class UploadRequest(msgspec.Struct):
    """Body of `POST /resource/upload-config`.

    A resource without references is deleted after the given minutes, at least 15.
    """

    file_name: FileName
    temp_resource_live_minutes: Annotated[int, msgspec.Meta(ge=1, le=MAX_UNUSED_MINUTES)] | None = (
        None
    )
    """Minutes for which an unused file is kept."""


class UploadTarget(msgspec.Struct):
    """Response with the URL for uploading a file once, and the later URL of the file."""

    upload_url: str
    """URL for `PUT` of the file, valid once."""
    resource_url: str
    """URL of the file after the upload."""
    key: str
    """Key of the file."""


class UploadTicket(msgspec.Struct, frozen=True):
    """The encrypted content of an upload URL."""

    tenant: str
    key: str
    name: str
    minutes: int
    until: int
    """Latest time (ms) of an upload with this ticket."""


class StoredFile(Stored, frozen=True, kw_only=True):
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
    """Ids of the dashboards and canvases that refer to the file."""
    created_at: datetime
    expires_at: datetime | None = None
    """Time at which the file is deleted, unless something refers to it by then."""


UNUSED_RETENTION = timedelta(minutes=UPLOAD_URL_MINUTES)
"""Time for which a file is kept after its last reference was removed, unless a new one is added."""
_RESOURCE_URL = re.compile(re.escape(FILE_PATH_PREFIX) + "([A-Za-z0-9_-]{32})(?![A-Za-z0-9_-])")


class ResourceStore:
    """The collection `resources`."""

    def __init__(self, database: Database, limits: LimitsCache) -> None:
        self._resources = database["resources"]
        self._limits = limits
        self._quota = Quota(self._resources, limits, "records")

    async def insert(self, resource: StoredFile) -> bool:
        """Insert a file; return False if its key exists.

        Raises `TooManyRequests` if the tenant has reached its limit of files or bytes.
        """
        await self._quota.reserve(resource.tenant)
        await self._check_byte_limit(resource)
        try:
            await self._resources.insert_one(to_document(resource))
        except DuplicateKey:
            return False
        return True

    async def get(self, key: str, *, content: bool = True) -> StoredFile | None:
        """Return a file of any tenant, without its content unless `content`.

        Its key is the only credential.
        """
        document = await self._resources.find_one({"_id": key}, None if content else {"content": 0})
        return read_document(document, StoredFile)

    async def has(self, tenant: str, url: str) -> bool:
        """Return whether a URL belongs to a resource of the tenant."""
        query: Document = {"_id": {"$in": find_resource_keys([url])}, "tenant": tenant}
        return await self._resources.find_one(query, {"_id": 1}) is not None

    async def update_references(
        self, tenant: str, holder: int, texts: Iterable[str], session: Session
    ) -> None:
        """Store which resources the texts of a dashboard or canvas (`holder`) refer to."""
        keys = find_resource_keys(texts)
        if keys:
            await self._resources.update_many(
                {"_id": {"$in": keys}, "tenant": tenant},
                {"$addToSet": {"usedBy": holder}, "$unset": {"expiresAt": ""}},
                session=session,
            )
        await self._remove_references(tenant, [holder], {"_id": {"$nin": keys}}, session)

    async def remove_references(
        self, tenant: str, holders: Sequence[int], session: Session
    ) -> None:
        """Remove the references of deleted dashboards and canvases."""
        await self._remove_references(tenant, holders, {}, session)

    async def _remove_references(
        self, tenant: str, holders: Sequence[int], only: Document, session: Session
    ) -> None:
        remaining_holders = {"$setDifference": ["$usedBy", list(holders)]}
        expiry = datetime.now(UTC) + UNUSED_RETENTION
        end = {"$cond": [{"$eq": ["$usedBy", []]}, expiry, "$$REMOVE"]}
        await self._resources.update_many(
            {"tenant": tenant, "usedBy": {"$in": list(holders)}, **only},
            [{"$set": {"usedBy": remaining_holders}}, {"$set": {"expiresAt": end}}],
            session=session,
        )

    async def _check_byte_limit(self, resource: StoredFile) -> None:
        maximum = (await self._limits.fetch(resource.tenant)).resource_bytes
        rows = await self._resources.aggregate(
            [
                {"$match": {"tenant": resource.tenant}},
                {"$group": {"_id": None, "size": {"$sum": "$size"}}},
            ],
            hint="tenant_size",
        )
        used = sum([row["size"] async for row in rows])
        if used + len(resource.content) > maximum:
            count_rejection("resourceBytes", resource.tenant)
            raise TooManyRequests(
                f"resourceBytes: the tenant has {used} bytes of resources, {maximum} are allowed",
                retry_after=RETRY_SECONDS,
            )


def find_resource_keys(texts: Iterable[str]) -> list[str]:
    """Return the keys of the resources that texts refer to."""
    return sorted({key for text in texts for key in _RESOURCE_URL.findall(text)})


UPLOAD_PATH_PREFIX = "/resource/uploads/"
_TICKET_CONTEXT = "upload of a resource"
_KEY_BYTES, _MINUTE_MS = 24, 60_000
MAX_CONCURRENT_DOWNLOADS = 8
"""Maximum files sent concurrently; one tenant may use half. Each is in memory while it is
sent."""
INVALID_LIBRARY_CODE = "blueprint_library_resources_fetch_failed"
"""The error code of an invalid library of device templates, as consoles expect it."""

SVG_MEDIA_TYPE, ZIP_MEDIA_TYPE = "image/svg+xml", "application/zip"
MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", SVG_MEDIA_TYPE, ZIP_MEDIA_TYPE)
_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"PK\x03\x04"), ZIP_MEDIA_TYPE),
)
_SVG_START_PATTERN = re.compile(rb"<svg[\s>/]")
_SVG_SEARCH_BYTES = 8192
"""Bytes at the beginning of a text in which the root of an SVG must occur."""


def detect_media_type(content: bytes) -> str | None:
    """Return the media type; None unless it is a supported picture or a ZIP."""
    for begins, media_type in _SIGNATURES:
        if begins.match(content):
            return media_type
    return SVG_MEDIA_TYPE if _is_svg(content[:_SVG_SEARCH_BYTES]) else None


def _is_svg(text: bytes) -> bool:
    """Return whether the first element is `svg`; documents with entities are rejected."""
    text = text.removeprefix(b"\xef\xbb\xbf").lstrip()
    while text.startswith((b"<?", b"<!")):
        end = b"-->" if text.startswith(b"<!--") else b">"
        text = text.partition(end)[2].lstrip()
    return _SVG_START_PATTERN.match(text) is not None


class ResourceService:
    """The operations on resources."""

    def __init__(self, store: ResourceStore, seal: Seal) -> None:
        self._store = store
        self._seal = seal
        self._files = FairScheduler("files", MAX_CONCURRENT_DOWNLOADS)

    def create_upload(self, user: Principal, request: UploadRequest) -> UploadTarget:
        """Return the URLs of a file to upload."""
        key = secrets.token_urlsafe(_KEY_BYTES)
        ticket = UploadTicket(
            tenant=user.tenant,
            key=key,
            name=request.file_name,
            minutes=max(UPLOAD_URL_MINUTES, request.temp_resource_live_minutes or 0),
            until=now_ms() + UPLOAD_URL_MINUTES * _MINUTE_MS,
        )
        sealed = self._seal.seal(msgspec.json.encode(ticket).decode(), _TICKET_CONTEXT)
        return UploadTarget(UPLOAD_PATH_PREFIX + sealed.rstrip("="), FILE_PATH_PREFIX + key, key)

    async def upload(self, sealed: str, content: bytes) -> None:
        """Store the file of a ticket.

        Raises `InvalidInput` for an invalid, expired or used ticket, `UnsupportedMedia` unless it
        is a picture or a ZIP, `TooLarge`, `TooManyRequests`.
        """
        ticket = self._open_ticket(sealed)
        media_type = detect_media_type(content)
        if media_type is None:
            text = f"the file must be one of {', '.join(MEDIA_TYPES)}"
            library = ticket.name.lower().endswith(".zip")
            raise UnsupportedMedia(text, code=INVALID_LIBRARY_CODE if library else None)
        if media_type == ZIP_MEDIA_TYPE and len(content) > MAX_LIBRARY_BYTES:
            raise TooLarge(f"a ZIP must have at most {MAX_LIBRARY_BYTES} bytes")
        now = datetime.now(UTC)
        resource = StoredFile(
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

    async def stream_content(self, resource: StoredFile) -> AsyncGenerator[bytes, None]:
        """Yield the content of a file; a tenant has only a few files in memory."""
        async with self._files.slot(resource.tenant):
            content = (await self.get(resource.id, content=True)).content
            for start in range(0, len(content), PIECE_BYTES):
                yield content[start : start + PIECE_BYTES]

    async def get(self, key: str, *, content: bool = False) -> StoredFile:
        """Return a file, without its content unless `content`; raise `NotFound`."""
        resource = await self._store.get(key, content=content)
        if resource is None:
            raise NotFound("the resource does not exist", field="key")
        return resource

    async def read_part(self, request: ReadResource) -> FilePart:
        """Return up to `FILE_PART_BYTES` of a tenant's file from an offset; raise `NotFound`."""
        for key in find_resource_keys([request.url]):
            resource = await self._store.get(key)
            if resource is not None and resource.tenant == request.tenant:
                content = resource.content[request.offset : request.offset + FILE_PART_BYTES]
                return FilePart(resource.name, resource.type, content)
        raise NotFound("the resource does not exist", field="url")

    def _open_ticket(self, sealed: str) -> UploadTicket:
        padding = "=" * (-len(sealed) % 4)
        try:
            text = self._seal.open(sealed + padding, _TICKET_CONTEXT)
        except SealBroken as error:
            raise InvalidInput("is invalid", field="ticket") from error
        ticket = msgspec.json.decode(text, type=UploadTicket)
        if ticket.until <= now_ms():
            raise InvalidInput("has expired", field="ticket")
        return ticket


Resources = NamedDependency[ResourceService]

PUBLIC_PATHS = frozenset({"/resource/uploads/", "/resource/files/"})
"""Paths without a principal, because browsers load pictures without a token."""
_CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; sandbox"
"""The policy of files: an SVG that is opened directly runs no scripts and sends no requests."""
_BROWSER_CACHE_SECONDS = 86_400
"""Seconds for which browsers cache a file: its content never changes, but it may be deleted."""
_FILE_HEADERS = {
    "Content-Security-Policy": _CSP,
    "Cross-Origin-Resource-Policy": "cross-origin",
    "Cache-Control": f"public, max-age={_BROWSER_CACHE_SECONDS}, immutable",
}


@post(
    "/upload-config",
    guards=[users],
    example={"file_name": "roof.png"},
    summary="Get URL for upload",
)
async def announce_upload(
    principal: RequestPrincipal, resources: Resources, data: JSONBody[UploadRequest]
) -> UploadTarget:
    """Return the URL for uploading a picture or ZIP once, within 15 minutes.

    The file is deleted unless a saved dashboard or canvas refers to it. Pictures may be PNG, JPEG,
    GIF, WebP or SVG. A ZIP has device templates and at most 5 MB.
    """
    return resources.create_upload(principal, data)


@put("/uploads/{ticket:str}", request_max_body_size=MAX_PICTURE_BYTES, include_in_schema=False)
async def upload_file(request: HttpRequest, resources: Resources, ticket: FromPath[str]) -> None:
    """Store the file in the body. The content determines the type, not the header."""
    await resources.upload(ticket, await request.body())


@get("/files/{key:str}", include_in_schema=False)
async def get_file(request: HttpRequest, resources: Resources, key: FromPath[str]) -> Stream:
    """Return an uploaded file; raise `NotFound`."""
    resource = await resources.get(key)
    way = "attachment" if resource.type == ZIP_MEDIA_TYPE else "inline"
    headers = _FILE_HEADERS | {
        "Content-Disposition": f"{way}; filename*=UTF-8''{quote(resource.name)}",
        "Content-Length": str(resource.size),
    }
    return Stream(resources.stream_content(resource), media_type=resource.type, headers=headers)


@dataclass(frozen=True)
class ResourceHandlerDependencies:
    """Dependencies of the handlers."""

    resources: ResourceService


def create_router(resources: ResourceService) -> Router:
    """Return the router of the operations, with their dependencies."""
    return route_operations(
        globals(),
        "/resource",
        dependencies=build_dependencies(ResourceHandlerDependencies(resources)),
        tags=["Resources"],
    )
