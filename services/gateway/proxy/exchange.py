"""One request on its way through the gateway, and what became known about it."""

from dataclasses import dataclass

from litestar.types import HTTPScope

from libs.common.identity import Principal
from services.gateway.access.addresses import Origin
from services.gateway.proxy.body import RequestBody
from services.gateway.proxy.watch import Watch
from services.gateway.routes import Route


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request that belongs to a service."""

    route: Route
    scope: HTTPScope
    headers: dict[bytes, bytes]
    """The last field of each name, for look-ups."""
    origin: Origin
    body: RequestBody
    watch: Watch
    request_id: str
    query: bytes = b""
    """Without the access token."""
    wait: float = 0.0
    """Seconds that it may take as a long poll; 0 when it is none."""
    principal: Principal | None = None
    answered: bool = False
    """Whether the head of the answer is out: then a failure can only break it off."""

    @property
    def path(self) -> bytes:
        """The path as the client sent it."""
        return self.scope["raw_path"]

    @property
    def target(self) -> str:
        """Path and query for the service."""
        path = self.route.target(self.path)
        return (path + b"?" + self.query if self.query else path).decode("latin-1")
