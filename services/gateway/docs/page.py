"""The page at `/docs`: Swagger UI, whose files are part of this package (see `static/`)."""

from functools import cache
from pathlib import Path

from libs.common.errors import NotFound

_STATIC = Path(__file__).parent / "static"

ASSETS = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "start.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}
"""The files that the page loads, with their media types."""
POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'"
)
"""Nothing is loaded from anywhere else."""
PAGE = (_STATIC / "index.html").read_bytes()


@cache
def asset(name: str) -> bytes:
    """The content of a file of the page; raise `NotFound` when there is none of that name."""
    if name not in ASSETS:
        raise NotFound("the documentation has no such file")
    return (_STATIC / name).read_bytes()
