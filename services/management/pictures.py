"""`/public/…`: icons of the integrations that come with the platform; open to everybody."""

from pathlib import Path

from litestar import Response, get
from litestar.params import FromPath

from libs.common.errors import NotFound
from libs.common.http import HttpRequest
from libs.common.http.static import Static

_DAY = 86400
_FILES = {
    path.name: Static(path.read_bytes(), "image/svg+xml", _DAY)
    for path in (Path(__file__).parent / "public").iterdir()
}
PATHS = frozenset({"/public/"})
"""What is answered without a caller: consoles log out at a 401."""


@get("/public/{name:str}", include_in_schema=False, sync_to_thread=False)
def picture(request: HttpRequest, name: FromPath[str]) -> Response[bytes]:
    """An icon; raise `NotFound`."""
    if name not in _FILES:
        raise NotFound(f"there is no picture {name}", field="name")
    return _FILES[name].answer(request)
