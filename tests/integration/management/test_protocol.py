"""The end of a WebSocket connection, at the level of TCP."""

import asyncio

from services.management.live.sockets import LiveSocketProtocol
from tests.serving import serving

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
SIZE = 2**25
HEAD = b"\x81\xff" + SIZE.to_bytes(8, "big") + bytes(4)
TOO_BIG = (1009).to_bytes(2, "big")


async def listen(scope, receive, send) -> None:
    await receive()
    if scope["type"] == "lifespan":
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def test_the_sender_of_an_oversized_frame_may_finish_it() -> None:
    """The close frame comes at once; the connection is reset neither before nor after it."""
    async with serving(listen, LiveSocketProtocol) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HANDSHAKE)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + bytes(1000))
        opcode, length = await reader.readexactly(2)
        closing = await reader.readexactly(length)
        for _ in range(SIZE // 2**20):
            writer.write(bytes(2**20))
            await writer.drain()
        writer.write_eof()
        assert (opcode, closing[:2], await reader.read()) == (0x88, TOO_BIG, b"")
        writer.close()
        await writer.wait_closed()
