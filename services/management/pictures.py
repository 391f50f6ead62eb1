"""The operation `/public/…`: icons of built-in integrations, without a login."""

from pathlib import Path

from litestar import Response, get
from litestar.params import FromPath

from libs.common.errors import NotFound
from libs.common.http import HttpRequest
from libs.common.http.static import StaticDocument

_DAY_SECONDS = 86400
_PICTURES_BY_NAME = {
    path.name: StaticDocument(path.read_bytes(), "image/svg+xml", _DAY_SECONDS)
    for path in (Path(__file__).parent / "public").iterdir()
}
PUBLIC_PATHS = frozenset({"/public/"})
"""Paths without a principal; consoles would log out at a 401."""


@get("/public/{name:str}", include_in_schema=False, sync_to_thread=False)
def picture(request: HttpRequest, name: FromPath[str]) -> Response[bytes]:
    """Return an icon; raise `NotFound`."""
    if name not in _PICTURES_BY_NAME:
        raise NotFound(f"the picture {name} does not exist", field="name")
    return _PICTURES_BY_NAME[name].answer(request)
