"""The connections of clients, counted by address: nobody alone holds what all need."""

from typing import Any

from libs.common.errors import TooManyRequests
from libs.common.http.protocol import BoundedProtocol, refusal
from libs.common.limits import counted_address
from libs.common.limits.use import Claim, Counts
from libs.common.tls import peer_certificate
from services.gateway.access.addresses import TrustedProxies
from services.gateway.access.gatekeeper import CERTIFICATE
from services.gateway.tunnel.tunnels import Client

_LATER = 5.0
"""Seconds after which a client of an address with too many connections may try again."""


class Connections:
    """Open connections by address, WebSockets among them; those of trusted proxies are not."""

    def __init__(self, proxies: TrustedProxies, most: int) -> None:
        self._proxies = proxies
        self._most = most
        self._open = Counts()

    def protocol(self, *args: Any, **options: Any) -> "CountedProtocol":
        """Make the protocol of a connection; uvicorn calls this."""
        return CountedProtocol(self, *args, **options)

    def claim(self, peer: str) -> Claim | None:
        """What a connection from `peer` counts as; None when it is not counted."""
        if self._proxies.trusts(peer):
            return None
        return counted_address(peer), self._most, "connections"

    def take(self, claim: Claim) -> bool:
        """Count a connection; False when its address has too many."""
        return self._open.take((claim,)) is None

    def give(self, claim: Claim) -> None:
        """A connection is gone."""
        self._open.give((claim,))


class CountedProtocol(BoundedProtocol):
    """One connection of a client, refused when its address has too many."""

    def __init__(self, connections: Connections, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._book = connections
        self._claim: Claim | None = None

    def connection_made(self, transport: Any) -> None:
        """Count the connection, or say that there are too many."""
        super().connection_made(transport)
        claim = self._book.claim(self.client[0] if self.client else "unknown")
        if claim is not None and not self._book.take(claim):
            message = "too many connections of this address are open"
            transport.write(refusal(TooManyRequests(message, retry_after=_LATER)))
            transport.close()
            return
        self._claim = claim
        certificate = peer_certificate(transport)
        if certificate is not None:
            self.app_state = {**self.app_state, CERTIFICATE: certificate}

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._give()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """Another protocol takes over, and tells when the connection is gone."""
        super().handle_websocket_upgrade()
        client = self.transport.get_protocol()
        if isinstance(client, Client):
            client.when_lost = self._give

    def _give(self) -> None:
        if self._claim is not None:
            self._book.give(self._claim)
            self._claim = None
