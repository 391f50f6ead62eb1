"""The console, as `make console` or the image built it: a page at `/` and what it loads."""

from pathlib import Path

from libs.common.http.static import YEAR, Static

BUILT = Path(__file__).parents[3] / "console" / "dist"
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'; worker-src 'self'"
)
"""Nothing is loaded from anywhere else, and nothing runs that no file holds."""
_MEDIA_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}


class ConsoleFiles:
    """The files under `built`, in memory; none when the console was not built."""

    def __init__(self, built: Path = BUILT) -> None:
        page = built / "index.html"
        self.page = (
            Static(page.read_bytes(), "text/html", policy=POLICY) if page.is_file() else None
        )
        worker = built / "sw.js"
        self.worker = Static(worker.read_bytes(), "text/javascript") if worker.is_file() else None
        """The service worker. Browsers ask for it again: it names the files of this build."""
        self.assets = {
            path.name: Static(path.read_bytes(), _MEDIA_TYPES[path.suffix], YEAR)
            for path in (built / "assets").glob("*")
            if path.suffix in _MEDIA_TYPES
        }
        """Their names tell what is in them: a file of a name never changes."""
