"""Connection limits per client address."""

from typing import Any

from libs.common.errors import TooManyRequests
from libs.common.http.protocol import BoundedProtocol, error_response
from libs.common.limits import address_key
from libs.common.limits.tenants import SlotCounts, SlotLimit
from libs.common.tls import peer_certificate
from services.gateway.access.addresses import TrustedProxies
from services.gateway.access.gatekeeper import CERTIFICATE_STATE_KEY
from services.gateway.tunnel import WebSocketClientConnection

_RETRY_SECONDS = 5.0
"""Seconds after which a client of an address with too many connections may retry."""


class AddressConnections:
    """Counts open connections by address, except connections of trusted proxies."""

    def __init__(self, proxies: TrustedProxies, maximum: int) -> None:
        self._proxies = proxies
        self._maximum = maximum
        self._open = SlotCounts()

    def create_protocol(self, *args: Any, **options: Any) -> "CountedProtocol":
        """Return the protocol of a connection; called by uvicorn."""
        return CountedProtocol(self, *args, **options)

    def find_slot_limit(self, peer: str) -> SlotLimit | None:
        """Return the slot limit for a connection from `peer`; None for a trusted proxy."""
        if self._proxies.is_trusted(peer):
            return None
        return address_key(peer), self._maximum, "connections"

    def occupy_slot(self, slot_limit: SlotLimit) -> bool:
        """Count a connection; return False if its address has too many."""
        return self._open.occupy((slot_limit,)) is None

    def release_slot(self, slot_limit: SlotLimit) -> None:
        """Release the slot of a closed connection."""
        self._open.release((slot_limit,))


class CountedProtocol(BoundedProtocol):
    """A connection of a client, rejected if its address has too many."""

    def __init__(self, connections: AddressConnections, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connection_counts = connections
        self._slot_limit: SlotLimit | None = None

    def connection_made(self, transport: Any) -> None:
        """Count the connection, or reject it; pass the client's certificate to its requests."""
        super().connection_made(transport)
        slot_limit = self._connection_counts.find_slot_limit(
            self.client[0] if self.client else "unknown"
        )
        if slot_limit is not None and not self._connection_counts.occupy_slot(slot_limit):
            message = "this address has too many open connections"
            error = TooManyRequests(message, retry_after=_RETRY_SECONDS)
            transport.write(error_response(error, headers=self.server_state.default_headers))
            transport.close()
            return
        self._slot_limit = slot_limit
        certificate = peer_certificate(transport)
        if certificate is not None:
            self.app_state = {**self.app_state, CERTIFICATE_STATE_KEY: certificate}

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the slot of the connection."""
        self._release()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """Let the WebSocket protocol release the slot when the connection is closed."""
        super().handle_websocket_upgrade()
        client = self.transport.get_protocol()
        if isinstance(client, WebSocketClientConnection):
            client.when_lost = self._release

    def _release(self) -> None:
        if self._slot_limit is not None:
            self._connection_counts.release_slot(self._slot_limit)
            self._slot_limit = None
