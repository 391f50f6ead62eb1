"""The MQTT and NATS listeners for devices with a certificate. Other logins pass unchanged.

A listener of nats-server requests a certificate from every client, or from none. The listeners of
the gateway therefore terminate TLS, and add the device of the certificate to the CONNECT for
nats-server. The NATS listener sends INFO before TLS starts
(https://docs.nats.io/reference/reference-protocols/nats-protocol).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec

from libs.common.http.protocol import HEAD_TIMEOUT_SECONDS
from libs.common.http.server import open_listening_socket
from libs.common.identity.header import CertificatePassSigner
from libs.common.limits.tenants import SlotLimit
from libs.common.mqtt import PacketError, find_connect_end, read_connect
from libs.common.tls import PeerCertificate, ServerTls, client_context_for, peer_certificate
from services.gateway.connections import AddressConnections
from services.gateway.tunnel import TunnelEnd

log = logging.getLogger(__name__)


class MqttTlsListener:
    """Accepts MQTT clients over TLS for nats-server, and logs in those with a certificate."""

    def __init__(
        self,
        connections: AddressConnections,
        passes: CertificatePassSigner,
        upstream: Sequence[Mapping[str, Any]],
        connect_timeout: float,
    ) -> None:
        """`upstream` are the MQTT listeners of nats-servers (`tls.parse_mqtt_urls`)."""
        self.connections = connections
        self.passes = passes
        self._upstream = upstream
        self._timeout = connect_timeout
        self.clients: set[MqttClientConnection] = set()
        """The connected clients."""

    @asynccontextmanager
    async def listen(self, host: str, port: int, tls: ServerTls) -> AsyncIterator[None]:
        """Accept connections; raise OSError if the port is in use."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: MqttClientConnection(self),
            sock=open_listening_socket(host, port),
            ssl=tls.context,
        )
        try:
            yield
        finally:
            server.close()
            for client in [*self.clients]:
                client.transport.close()
            await server.wait_closed()

    async def connect_to_server(self) -> TunnelEnd:
        """Connect to the first nats-server that answers; raise OSError or TimeoutError."""
        failed: Exception = OSError("no NATS server is configured")
        loop = asyncio.get_running_loop()
        for listener in self._upstream:
            host, port, tls = listener["hostname"], listener["port"], listener["tls_context"]
            try:
                async with asyncio.timeout(self._timeout):
                    _, server = await loop.create_connection(TunnelEnd, host, port, ssl=tls)
            except (OSError, TimeoutError) as error:
                failed = error
            else:
                return server
        raise failed


class MqttClientConnection(TunnelEnd):
    """The connection of a client, whose first packet is parsed."""

    def __init__(self, listener: MqttTlsListener) -> None:
        super().__init__()
        self._listener = listener
        self._head = b""
        self._slot_limit: SlotLimit | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._joining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection; close it if its address has too many or the CONNECT is late."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        slot_limit = self._listener.connections.find_slot_limit(peer[0] if peer else "unknown")
        if slot_limit is not None and not self._listener.connections.occupy_slot(slot_limit):
            self.transport.close()
            return
        self._slot_limit = slot_limit
        self._listener.clients.add(self)
        self._timer = asyncio.get_running_loop().call_later(
            HEAD_TIMEOUT_SECONDS, self.transport.abort
        )

    def data_received(self, data: bytes) -> None:
        """Wait for the CONNECT, then forward data."""
        if self.other is not None:
            super().data_received(data)
            return
        self._head += data
        try:
            head = self._take_first_data()
        except PacketError as error:
            log.info("certificates: %s", error)
            self.transport.abort()
            return
        if head is not None:
            self._cancel_timeout()
            self.transport.pause_reading()
            self._joining = asyncio.ensure_future(self._connect_server(head))

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the slot of the connection."""
        self._cancel_timeout()
        if self._slot_limit is not None:
            self._listener.connections.release_slot(self._slot_limit)
            self._slot_limit = None
        self._listener.clients.discard(self)
        super().connection_lost(exc)

    def _take_first_data(self) -> bytes | None:
        """Return the received data, with the login of a certificate added to the CONNECT.

        Returns None until the CONNECT is complete, and raises `PacketError` for another packet.
        """
        end = find_connect_end(self._head)
        if end is None or len(self._head) < end:
            return None
        packet, rest = self._head[:end], self._head[end:]
        return self._add_pass(packet) + rest

    def _add_pass(self, packet: bytes) -> bytes:
        """Return the CONNECT, with a pass as password if the client has a certificate.

        A CONNECT that has a password, or a user name other than the SN of the certificate, is
        returned unchanged, and nats-server checks its login.
        """
        certificate, connect = peer_certificate(self.transport), read_connect(packet)
        if certificate is None or connect is None or connect.password is not None:
            return packet
        if connect.user and connect.user != certificate.subject.encode():
            return packet
        return connect.with_login(certificate.subject, self._listener.passes.sign(certificate))

    def _cancel_timeout(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _connect_server(self, head: bytes) -> None:
        try:
            server = await self._listener.connect_to_server()
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


_NATS_CREDENTIAL_FIELDS = ("pass", "auth_token", "jwt", "nkey")
_COPY_READ_BYTES = 64 * 1024
StreamPair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class UnexpectedOperationError(ValueError):
    """A line of the NATS protocol with another operation than expected."""


def rewrite_info_for_client(line: bytes) -> bytes:
    """Return nats-server's INFO with TLS required and without the addresses of other servers."""
    info = _decode_operation(line, b"INFO ") | {"tls_required": True}
    info.pop("connect_urls", None)
    return b"INFO " + msgspec.json.encode(info) + b"\r\n"


def add_pass_to_connect(
    line: bytes, certificate: PeerCertificate | None, passes: CertificatePassSigner
) -> bytes:
    """Return the CONNECT, with a pass as password if the client has a certificate.

    A CONNECT that has a credential, or a user name other than the SN of the certificate, is
    returned unchanged, and nats-server checks its login. Raises `UnexpectedOperationError` for
    another operation.
    """
    options = _decode_operation(line, b"CONNECT ")
    if certificate is None or any(options.get(name) for name in _NATS_CREDENTIAL_FIELDS):
        return line
    if options.get("user") not in {None, "", certificate.subject}:
        return line
    options |= {"user": certificate.subject, "pass": passes.sign(certificate)}
    return b"CONNECT " + msgspec.json.encode(options) + b"\r\n"


class NatsTlsListener:
    """Accepts NATS clients over TLS for nats-server, and logs in those with a certificate."""

    def __init__(
        self,
        connections: AddressConnections,
        passes: CertificatePassSigner,
        urls: str,
        ca_file: str,
        connect_timeout: float,
    ) -> None:
        """`urls` are the URLs of nats-servers, separated by commas."""
        self._connections = connections
        self._passes = passes
        self._servers = [
            (urlsplit(url), client_context_for(url, ca_file)) for url in urls.split(",")
        ]
        self._timeout = connect_timeout
        self._open: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listen(self, host: str, port: int, tls: ServerTls) -> AsyncIterator[None]:
        """Accept connections; raise OSError if the port is in use."""

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._serve((reader, writer), tls))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

        server = await asyncio.start_server(accept, sock=open_listening_socket(host, port))
        try:
            yield
        finally:
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, client: StreamPair, tls: ServerTls) -> None:
        peer = client[1].get_extra_info("peername")
        slot_limit = self._connections.find_slot_limit(peer[0] if peer else "unknown")
        if slot_limit is not None and not self._connections.occupy_slot(slot_limit):
            client[1].close()
            return
        try:
            async with asyncio.timeout(HEAD_TIMEOUT_SECONDS):
                server = await self._connect_client_to_server(client, tls)
            await asyncio.gather(
                _copy_until_closed(client[0], server[1]), _copy_until_closed(server[0], client[1])
            )
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            log.info("certificates: a NATS connection was closed early: %r", error)
        finally:
            client[1].close()
            if slot_limit is not None:
                self._connections.release_slot(slot_limit)

    async def _connect_client_to_server(self, client: StreamPair, tls: ServerTls) -> StreamPair:
        """Forward the CONNECT that a client sends over TLS; return the server's connection."""
        server, info = await self._connect_and_read_info()
        try:
            client[1].write(rewrite_info_for_client(info))
            await client[1].start_tls(tls.context)
            certificate = peer_certificate(client[1].transport)
            line = await client[0].readuntil(b"\n")
            server[1].write(add_pass_to_connect(line, certificate, self._passes))
        except BaseException:
            server[1].close()
            raise
        return server

    async def _connect_and_read_info(self) -> tuple[StreamPair, bytes]:
        """Connect to the first server that answers; return the connection and its INFO."""
        failed: Exception = OSError("no NATS server is configured")
        for address, trust in self._servers:
            try:
                async with asyncio.timeout(self._timeout):
                    host = address.hostname or ""
                    ends = await asyncio.open_connection(host, address.port or 4222)
                    info = await ends[0].readuntil(b"\n")
                    if trust is not None:
                        await ends[1].start_tls(trust, server_hostname=host)
            except (OSError, EOFError, TimeoutError) as error:
                failed = error
            else:
                return ends, info
        raise failed


async def _copy_until_closed(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy data from `source` to `sink` until one is closed, with back pressure."""
    try:
        while data := await source.read(_COPY_READ_BYTES):
            sink.write(data)
            await sink.drain()
    finally:
        sink.close()


def _decode_operation(line: bytes, verb: bytes) -> dict[str, Any]:
    if line[: len(verb)].upper() != verb:
        raise UnexpectedOperationError(f"expected {verb.decode()}. Got {line[:20]!r}")
    return msgspec.json.decode(line[len(verb) :], type=dict[str, Any])
