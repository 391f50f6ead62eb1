"""The body of a request: decoded, counted, limited, and streamed."""

from collections.abc import AsyncIterator

from litestar.types import Receive

from libs.common.errors import TooLarge
from services.gateway.proxy.coding import BodyDecoder, create_decoder


class ClientDisconnected(Exception):
    """The client closed its connection."""


class RequestBody:
    """Reads the body of a request.

    `length` is the declared length of the body in bytes, None if it is unknown or if the gateway
    decodes the body. The limit applies to the received and to the decoded bytes.
    """

    def __init__(self, receive: Receive, headers: dict[bytes, bytes], limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._first = b""
        self._read = 0
        self._coding = headers.get(b"content-encoding")
        self._decoder: BodyDecoder | None = None
        self.length = _declared_length(headers)
        self.exists = bool(self.length) or b"transfer-encoding" in headers
        self.finished = not self.exists
        """Whether the body was read completely."""
        self.on_demand = (
            self.exists and headers.get(b"expect", b"").strip().lower() == b"100-continue"
        )
        """Whether the client waits for `100 Continue`, which the first read sends."""
        self.awaited = False
        """Whether the gateway waits for the client; otherwise it waits for the service."""

    def require_acceptable(self) -> None:
        """Raise `TooLarge` for a length above the limit, `UnsupportedMedia` for an unknown coding.

        Only the declared length is checked here.
        """
        if self.length is not None and self.length > self._limit:
            raise TooLarge(f"the body is larger than {self._limit} bytes")
        if self._coding is not None:
            self._decoder = create_decoder(self._coding)

    async def start(self) -> bytes | AsyncIterator[bytes] | None:
        """Return the body: complete if it has arrived, else a stream of parts; None if absent."""
        if not self.exists:
            return None
        if self._decoder is not None:
            return await self._start_decoding(self._decoder)
        part, more = await self._receive_part()
        if more:
            self._first = part
            return self._stream_parts()
        self.finished = True
        return part

    async def discard_part(self) -> int:
        """Receive and discard the next part; return its size in bytes."""
        before = self._read
        try:
            _, more = await self._receive_part(limited=False)
        except ClientDisconnected:
            more = False
        self.finished = not more
        return self._read - before

    async def _stream_parts(self) -> AsyncIterator[bytes]:
        part, more = self._first, True
        self._first = b""
        while more:
            if part:
                yield part
            part, more = await self._receive_part()
        self.finished = True
        if part:
            yield part

    async def _start_decoding(self, decoder: BodyDecoder) -> bytes | AsyncIterator[bytes]:
        """Return the decoded body: complete if it has arrived, else a stream of pieces."""
        self.length = None
        part, more = await self._receive_part()
        self.finished = not more
        if more:
            return self._stream_decoded(decoder, part)
        return b"".join([piece async for piece in self._stream_decoded(decoder, part)])

    async def _stream_decoded(self, decoder: BodyDecoder, part: bytes) -> AsyncIterator[bytes]:
        size, more = 0, not self.finished
        while True:
            for piece in decoder.decode(part, more=more):
                size += len(piece)
                if size > self._limit:
                    raise TooLarge(f"the body is larger than {self._limit} bytes")
                if piece:
                    yield piece
            if not more:
                return
            part, more = await self._receive_part()
            self.finished = not more

    async def _receive_part(self, *, limited: bool = True) -> tuple[bytes, bool]:
        self.awaited = True
        message = await self._receive()
        self.awaited = self.on_demand = False
        if message["type"] != "http.request":
            raise ClientDisconnected
        part: bytes = message["body"]
        self._read += len(part)
        if limited and self._read > self._limit:
            raise TooLarge(f"the body is larger than {self._limit} bytes")
        return part, message["more_body"]


def _declared_length(headers: dict[bytes, bytes]) -> int | None:
    raw = headers.get(b"content-length")
    return None if raw is None or b"transfer-encoding" in headers else int(raw)
