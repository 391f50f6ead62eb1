"""What waits in a tunnel for a client that does not read is bounded in bytes."""

import asyncio
import socket

from services.gateway.tunnel import MAX_READ_BYTES, MAX_WAITING_BYTES, TunnelEnd


async def test_little_waits_for_a_client_that_does_not_keep_up() -> None:
    """The gateway reads no more from the service until the client has taken it; nothing is lost."""
    loop = asyncio.get_running_loop()
    ends = []
    outside = []
    for _ in "12":
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        outside.append(theirs)
        ends.append((await loop.create_connection(TunnelEnd, sock=ours))[1])
    client, service = ends
    client.other, service.other = service, client
    said = bytes(range(256)) * 8192
    sending = asyncio.ensure_future(loop.sock_sendall(outside[1], said))
    while client.transport.get_write_buffer_size() <= MAX_WAITING_BYTES:
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
        assert client.transport.get_write_buffer_size() <= MAX_WAITING_BYTES + MAX_READ_BYTES
    assert not sending.done()
    heard = b""
    while len(heard) < len(said):
        heard += await loop.sock_recv(outside[0], 65536)
        assert client.transport.get_write_buffer_size() <= MAX_WAITING_BYTES + MAX_READ_BYTES
    assert heard == said
    outside[1].close()
    assert await loop.sock_recv(outside[0], 1) == b""
    outside[0].close()
