"""`/public/…`: icons of the integrations that come with the platform; open to everybody."""

from pathlib import Path

from litestar import Response, get
from litestar.params import FromPath

from libs.common.errors import NotFound

_FILES = {path.name: path.read_bytes() for path in (Path(__file__).parent / "public").iterdir()}

PATHS = frozenset(f"/public/{name}" for name in _FILES)
"""What is answered without a caller; other names are refused as unknown callers are."""


@get("/public/{name:str}", include_in_schema=False, sync_to_thread=False)
def picture(name: FromPath[str]) -> Response[bytes]:
    """An icon; raise `NotFound`."""
    content = _FILES.get(name)
    if content is None:
        raise NotFound(f"there is no picture {name}", field="name")
    return Response(
        content, media_type="image/svg+xml", headers={"Cache-Control": "public, max-age=86400"}
    )
