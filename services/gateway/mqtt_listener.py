"""The MQTT listener for devices with a certificate; other logins pass unchanged.

A listener of nats-server requests a certificate from every client, or from none. This listener of
the gateway therefore terminates TLS, and adds the device of the certificate to the CONNECT for
nats-server.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from libs.common.http.protocol import HEAD_TIMEOUT
from libs.common.http.server import listen
from libs.common.identity.header import PassSigner
from libs.common.limits.usage import SlotLimit
from libs.common.mqtt import PacketError, connect_end, read_connect
from libs.common.tls import ServerTls, peer_certificate
from services.gateway.connections import Connections
from services.gateway.tunnel.end import End

log = logging.getLogger(__name__)


class MqttListener:
    """Connects MQTT clients to nats-server, and logs in those with a certificate."""

    def __init__(
        self,
        connections: Connections,
        passes: PassSigner,
        upstream: Sequence[Mapping[str, Any]],
        connect_timeout: float,
    ) -> None:
        """`upstream` are the MQTT listeners of nats-servers (`mqtt_doors`)."""
        self.connections = connections
        self.passes = passes
        self._upstream = upstream
        self._timeout = connect_timeout
        self.clients: set[Client] = set()
        """The connected clients."""

    @asynccontextmanager
    async def opened(self, host: str, port: int, tls: ServerTls) -> AsyncIterator[None]:
        """Accept connections; raise OSError if the port is in use."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Client(self), sock=listen(host, port), ssl=tls.context
        )
        try:
            yield
        finally:
            server.close()
            for client in [*self.clients]:
                client.transport.close()
            await server.wait_closed()

    async def connect(self) -> End:
        """Connect to the first nats-server that answers; raise OSError or TimeoutError."""
        failed: Exception = OSError("no NATS server is configured")
        loop = asyncio.get_running_loop()
        for listener in self._upstream:
            host, port, tls = listener["hostname"], listener["port"], listener["tls_context"]
            try:
                async with asyncio.timeout(self._timeout):
                    _, server = await loop.create_connection(End, host, port, ssl=tls)
            except (OSError, TimeoutError) as error:
                failed = error
            else:
                return server
        raise failed


class Client(End):
    """The connection of a client, whose first packet is parsed."""

    def __init__(self, listener: MqttListener) -> None:
        super().__init__()
        self._listener = listener
        self._head = b""
        self._claim: SlotLimit | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._joining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection; close it if its address has too many, or after a timeout."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        claim = self._listener.connections.claim(peer[0] if peer else "unknown")
        if claim is not None and not self._listener.connections.admit(claim):
            self.transport.close()
            return
        self._claim = claim
        self._listener.clients.add(self)
        self._timer = asyncio.get_running_loop().call_later(HEAD_TIMEOUT, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        """Wait for the CONNECT, then forward data."""
        if self.other is not None:
            super().data_received(data)
            return
        self._head += data
        try:
            head = self._complete()
        except PacketError as error:
            log.info("certificates: %s", error)
            self.transport.abort()
            return
        if head is not None:
            self._stop_waiting()
            self.transport.pause_reading()
            self._joining = asyncio.ensure_future(self._join(head))

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the slot of the connection."""
        self._stop_waiting()
        if self._claim is not None:
            self._listener.connections.release(self._claim)
            self._claim = None
        self._listener.clients.discard(self)
        super().connection_lost(exc)

    def _complete(self) -> bytes | None:
        """Return the first data for nats-server; None while the CONNECT is incomplete."""
        end = connect_end(self._head)
        if end is None or len(self._head) < end:
            return None
        packet, rest = self._head[:end], self._head[end:]
        return self._with_pass(packet) + rest

    def _with_pass(self, packet: bytes) -> bytes:
        """Return a CONNECT that logs in the device of a certificate without a password.

        Its user name must be the SN or empty; any other CONNECT is forwarded unchanged, and
        rejected.
        """
        certificate, connect = peer_certificate(self.transport), read_connect(packet)
        if certificate is None or connect is None or connect.password is not None:
            return packet
        if connect.user and connect.user != certificate.subject.encode():
            return packet
        return connect.with_login(certificate.subject, self._listener.passes.sign(certificate))

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _join(self, head: bytes) -> None:
        try:
            server = await self._listener.connect()
        except (OSError, TimeoutError) as error:
            log.warning("certificates: cannot connect to nats-server: %r", error)
            self.transport.close()
            return
        if self.transport.is_closing():
            server.transport.close()
            return
        self.other, server.other = server, self
        server.transport.write(head)
        self.transport.resume_reading()
