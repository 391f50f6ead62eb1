"""The WebSocket protocol of live updates: uvicorn's, which hears a faulty peer out."""

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from libs.common.contracts.mqtt import WS_PATH
from services.management.live.closing import WRITABLE
from services.management.live.packets import LARGEST


class PatientProtocol(WebSocketsSansIOProtocol):
    """Closes after the peer, or after `close_timeout` seconds, when a frame is refused.

    A connection that is closed while the peer still sends is reset, and a reset may overtake
    the close frame that says why (RFC 6455, 7.1.1).
    """

    def handle_connect(self, event: Request) -> None:
        """Bound the frames of MQTT before the first one comes, from somebody unknown.

        No pings beside those of MQTT: paho's answers break RFC 6455 (5.1), and end the connection.
        """
        if event.path.partition("?")[0] == WS_PATH:
            self.conn.max_message_size = LARGEST
            self.ping_interval = None
        super().handle_connect(event)

    async def run_asgi(self) -> None:
        """Let the application know when the client does not keep up."""
        self.scope["state"][WRITABLE] = self.writable
        await super().run_asgi()

    def handle_parser_exception(self) -> None:
        """Say why once; whatever else arrives is dropped by the parser."""
        if self.close_timer is not None or self.conn.close_sent is None:
            return
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)
