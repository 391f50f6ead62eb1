"""The NATS listener for devices with a certificate, similar to `mqtt_listener`.

It sends INFO, starts TLS, reads a CONNECT and adds the device of the certificate.

https://docs.nats.io/reference/reference-protocols/nats-protocol
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec

from libs.common.http.protocol import HEAD_TIMEOUT
from libs.common.http.server import listen
from libs.common.identity.header import PassSigner
from libs.common.tls import PeerCertificate, ServerTls, client_context_for, peer_certificate
from services.gateway.connections import Connections

log = logging.getLogger(__name__)

_CREDENTIALS = ("pass", "auth_token", "jwt", "nkey")
_PART = 64 * 1024
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class NotNatsError(ValueError):
    """A line with an unexpected operation."""


def encrypted_info(line: bytes) -> bytes:
    """Return nats-server's INFO with TLS required and without other servers."""
    info = _decode(line, b"INFO ") | {"tls_required": True}
    info.pop("connect_urls", None)
    return b"INFO " + msgspec.json.encode(info) + b"\r\n"


def with_pass(line: bytes, certificate: PeerCertificate | None, passes: PassSigner) -> bytes:
    """Return a CONNECT that logs in the device of a certificate without a credential.

    Its user name must be the SN or empty; any other CONNECT is forwarded unchanged, and rejected.
    """
    options = _decode(line, b"CONNECT ")
    if certificate is None or any(options.get(name) for name in _CREDENTIALS):
        return line
    if options.get("user") not in {None, "", certificate.subject}:
        return line
    options |= {"user": certificate.subject, "pass": passes.sign(certificate)}
    return b"CONNECT " + msgspec.json.encode(options) + b"\r\n"


class NatsListener:
    """Connects clients to nats-server, and logs in those with a certificate."""

    def __init__(
        self,
        connections: Connections,
        passes: PassSigner,
        urls: str,
        ca_file: str,
        connect_timeout: float,
    ) -> None:
        """`urls` are the URLs of nats-servers, as in the settings."""
        self._connections = connections
        self._passes = passes
        self._servers = [
            (urlsplit(url), client_context_for(url, ca_file)) for url in urls.split(",")
        ]
        self._timeout = connect_timeout
        self._open: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def opened(self, host: str, port: int, tls: ServerTls) -> AsyncIterator[None]:
        """Accept connections; raise OSError if the port is in use."""

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._serve((reader, writer), tls))
            self._open.add(task)
            task.add_done_callback(self._open.discard)

        server = await asyncio.start_server(accept, sock=listen(host, port))
        try:
            yield
        finally:
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, client: Ends, tls: ServerTls) -> None:
        peer = client[1].get_extra_info("peername")
        claim = self._connections.claim(peer[0] if peer else "unknown")
        if claim is not None and not self._connections.admit(claim):
            client[1].close()
            return
        try:
            async with asyncio.timeout(HEAD_TIMEOUT):
                server = await self._join(client, tls)
            await asyncio.gather(_pipe(client[0], server[1]), _pipe(server[0], client[1]))
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            log.info("certificates: a NATS connection was closed early: %r", error)
        finally:
            client[1].close()
            if claim is not None:
                self._connections.release(claim)

    async def _join(self, client: Ends, tls: ServerTls) -> Ends:
        """Read the CONNECT of a client over TLS; return the connection to its server."""
        server, info = await self._connect()
        try:
            client[1].write(encrypted_info(info))
            await client[1].start_tls(tls.context)
            certificate = peer_certificate(client[1].transport)
            line = await client[0].readuntil(b"\n")
            server[1].write(with_pass(line, certificate, self._passes))
        except BaseException:
            server[1].close()
            raise
        return server

    async def _connect(self) -> tuple[Ends, bytes]:
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


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy data from `source` to `sink` until one is closed, with back pressure."""
    try:
        while data := await source.read(_PART):
            sink.write(data)
            await sink.drain()
    finally:
        sink.close()


def _decode(line: bytes, verb: bytes) -> dict[str, Any]:
    if line[: len(verb)].upper() != verb:
        raise NotNatsError(f"expected {verb.decode()}. Got {line[:20]!r}")
    return msgspec.json.decode(line[len(verb) :], type=dict[str, Any])
