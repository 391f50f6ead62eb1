"""`/resource`: files that people upload. The URLs of uploads and files are all that they need."""

from dataclasses import dataclass
from urllib.parse import quote

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from litestar.response import Stream

from libs.common.contracts.limits import LARGEST_FILE
from libs.common.http import HttpRequest, Requester, provide
from libs.common.http.console import get, post, put
from libs.common.http.guards import users
from libs.common.http.operations import operations_of
from services.management.resources.schemas import AnnouncedUpload, AnnounceUpload
from services.management.resources.service import ZIP, ResourceService

Resources = NamedDependency[ResourceService]

PATHS = frozenset({"/resource/uploads/", "/resource/files/"})
"""What is answered without a caller: browsers load pictures without a token."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; sandbox"
"""An SVG that somebody opens by itself runs nothing and asks nobody."""
_AGE = 86_400
"""Seconds that browsers keep a file: what a URL shows never changes, but it may go."""
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Resource-Policy": "cross-origin",
    "Cache-Control": f"public, max-age={_AGE}, immutable",
}


@post("/upload-config", guards=[users], example={"file_name": "roof.png"})
async def announce_upload(
    principal: Requester, resources: Resources, data: JSONBody[AnnounceUpload]
) -> AnnouncedUpload:
    """Where to PUT a picture (PNG, JPEG, GIF, WebP, SVG) or a ZIP, once and within 15 minutes.

    It is deleted unless a dashboard or a canvas that is saved names it. A ZIP is of device
    templates and has 5 MB at most.
    """
    return resources.announce(principal, data)


@put("/uploads/{ticket:str}", request_max_body_size=LARGEST_FILE, include_in_schema=False)
async def upload_file(request: HttpRequest, resources: Resources, ticket: FromPath[str]) -> None:
    """Take the file as the body. What it is, is told by its content and not by its header."""
    await resources.upload(ticket, await request.body())


@get("/files/{key:str}", include_in_schema=False)
async def get_file(request: HttpRequest, resources: Resources, key: FromPath[str]) -> Stream:
    """A file that was uploaded; raise `NotFound`."""
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
    """Return the operations with their dependencies."""
    return Router(
        "/resource",
        route_handlers=operations_of(globals()),
        dependencies=provide(ResourceHandlers(resources)),
        tags=["Resources"],
    )
