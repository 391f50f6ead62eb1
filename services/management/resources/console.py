"""The operations of `/resource`: uploaded files, whose URLs are the only credential."""

from dataclasses import dataclass
from urllib.parse import quote

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from litestar.response import Stream

from libs.common.contracts.limits import LARGEST_FILE
from libs.common.http import HttpRequest, RequestPrincipal, provide
from libs.common.http.console import get, post, put
from libs.common.http.guards import users
from libs.common.http.operations import operations_of
from services.management.resources.schemas import AnnouncedUpload, AnnounceUpload
from services.management.resources.service import ZIP, ResourceService

Resources = NamedDependency[ResourceService]

PATHS = frozenset({"/resource/uploads/", "/resource/files/"})
"""Paths without a principal, because browsers load pictures without a token."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; sandbox"
"""The policy of files: an SVG that is opened directly runs no scripts and sends no requests."""
_AGE = 86_400
"""Seconds for which browsers cache a file: its content never changes, but it may be deleted."""
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Resource-Policy": "cross-origin",
    "Cache-Control": f"public, max-age={_AGE}, immutable",
}


@post("/upload-config", guards=[users], example={"file_name": "roof.png"})
async def announce_upload(
    principal: RequestPrincipal, resources: Resources, data: JSONBody[AnnounceUpload]
) -> AnnouncedUpload:
    """Return the URL for uploading a picture or ZIP once, within 15 minutes.

    The file is deleted unless a saved dashboard or canvas refers to it. Pictures may be PNG, JPEG,
    GIF, WebP or SVG. A ZIP has device templates and at most 5 MB.
    """
    return resources.announce(principal, data)


@put("/uploads/{ticket:str}", request_max_body_size=LARGEST_FILE, include_in_schema=False)
async def upload_file(request: HttpRequest, resources: Resources, ticket: FromPath[str]) -> None:
    """Store the file in the body. Its content determines the type, not its header."""
    await resources.upload(ticket, await request.body())


@get("/files/{key:str}", include_in_schema=False)
async def get_file(request: HttpRequest, resources: Resources, key: FromPath[str]) -> Stream:
    """Return an uploaded file; raise `NotFound`."""
    found = await resources.get(key)
    way = "attachment" if found.type == ZIP else "inline"
    headers = _SAFE | {
        "Content-Disposition": f"{way}; filename*=UTF-8''{quote(found.name)}",
        "Content-Length": str(found.size),
    }
    return Stream(resources.read(found), media_type=found.type, headers=headers)


@dataclass(frozen=True)
class ResourceHandlers:
    """Dependencies of the handlers."""

    resources: ResourceService


def create_router(resources: ResourceService) -> Router:
    """Return the router of the operations, with their dependencies."""
    return Router(
        "/resource",
        route_handlers=operations_of(globals()),
        dependencies=provide(ResourceHandlers(resources)),
        tags=["Resources"],
    )
