"""The endpoints `/websocket` and `/mqtt`: live updates.

`/mqtt` implements a broker of MQTT 3.1.1 that only sends: each user may subscribe to a single
topic, and must not publish.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from litestar import Router, WebSocket, websocket
from litestar.di import NamedDependency
from litestar.exceptions import WebSocketDisconnect

from libs.common.errors import ThingwayError, Unauthenticated
from libs.common.http import build_dependencies, get_principal
from libs.common.http.guards import users
from libs.common.identity import TOKEN_HEADER
from libs.common.identity.grants import GrantReader
from libs.common.identity.tokens import access_token_key
from libs.common.mqtt import Connect, PacketError
from services.management.live.access import AdmissionControl
from services.management.live.events import LiveEventConsumer
from services.management.live.frames import FilterRequest, InvalidFrame, decode_frame
from services.management.live.hub import Hub, Subscriptions
from services.management.live.mqtt_publisher import MqttListener
from services.management.live.packets import (
    PINGRESP,
    SUBACK_FAILURE,
    ConnackCode,
    Packet,
    PacketStream,
    Ping,
    Subscribe,
    Unsubscribe,
    UnsupportedConnect,
    encode_connack,
    encode_suback,
    encode_unsuback,
)
from services.management.live.sockets import MALFORMED, POLICY, TRY_AGAIN, LiveSocket, SocketTurns
from services.management.live.subscriber import Subscriber

MQTT_SUBPROTOCOL = "mqtt"
CONNECT_TIMEOUT_SECONDS = 5.0
"""Seconds in which CONNECT must arrive."""
MAX_SILENCE_SECONDS = 600.0
"""Maximum seconds between two packets of a client, regardless of its keep-alive."""
KEEP_ALIVE_FACTOR = 1.5
"""Multiple of the keep-alive after which a silent client is disconnected (MQTT 3.1.1, 3.1.2.10)."""


@websocket("/websocket", guards=[users])
async def serve_websocket(
    socket: WebSocket[Any, Any, Any],
    events: NamedDependency[LiveEventConsumer],
    subscriptions: NamedDependency[Subscriptions],
    grants: NamedDependency[GrantReader],
    turns: NamedDependency[SocketTurns],
) -> None:
    """Push changes until either side closes the socket; the platform closes with a reason."""
    principal = get_principal(socket)
    live_socket = LiveSocket(socket, turns)
    subscriber = Subscriber(
        principal,
        access_token_key(socket.headers.get(TOKEN_HEADER, "")),
        await grants.read(principal),
        live_socket,
    )
    events.hub.add(subscriber)
    try:
        await events.wait_until_subscribed(principal.tenant)
        await socket.accept()
        await _process_frames(live_socket, subscriber, subscriptions)
    finally:
        subscriptions.remove_socket(subscriber)


async def _process_frames(
    live_socket: LiveSocket, subscriber: Subscriber, subscriptions: Subscriptions
) -> None:
    """Process the frames of a client until the client disconnects.

    An invalid frame closes the socket; frames that arrive until then are read too.
    """
    while True:
        try:
            text = await live_socket.socket.receive_data(mode="text")
            async with subscriptions.turns.step(subscriber.principal.tenant):
                requested = decode_frame(text)
            if isinstance(requested, frozenset):
                await subscriptions.set_keys(subscriber, requested)
            elif isinstance(requested, FilterRequest):
                await subscriptions.set_filter(subscriber, requested.filter)
                await live_socket.send(requested.confirmation)
            elif requested is not None:
                await live_socket.send(requested)
        except WebSocketDisconnect:
            return
        except InvalidFrame as error:
            subscriber.close(MALFORMED, str(error))
        except ThingwayError as error:
            subscriber.close(TRY_AGAIN, error.text)


@websocket("/mqtt")
async def serve_mqtt(
    socket: WebSocket[Any, Any, Any],
    events: NamedDependency[LiveEventConsumer],
    admission: NamedDependency[AdmissionControl],
    turns: NamedDependency[SocketTurns],
) -> None:
    """Push ids of changed entities until either side disconnects."""
    if MQTT_SUBPROTOCOL not in socket.scope["subprotocols"]:
        await socket.close(code=POLICY, reason="the sub-protocol must be mqtt")
        return
    await socket.accept(subprotocols=MQTT_SUBPROTOCOL)
    live_socket, packets = LiveSocket(socket, turns), _receive_packets(socket)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            first = await anext(packets, None)
        if isinstance(first, Connect):
            await _serve_mqtt_client(live_socket, packets, first, events, admission)
        elif isinstance(first, UnsupportedConnect):
            await live_socket.send(encode_connack(ConnackCode.VERSION))
            live_socket.close(POLICY, "the protocol must be MQTT 3.1.1")
        elif first is not None:
            live_socket.close(MALFORMED, "a connection must begin with CONNECT")
    except TimeoutError:
        live_socket.close(POLICY, "no packet arrived in time")
    except PacketError as error:
        live_socket.close(MALFORMED, str(error))
    await live_socket.wait_closed()


async def _serve_mqtt_client(
    live_socket: LiveSocket,
    packets: AsyncIterator[Packet],
    connect: Connect,
    events: LiveEventConsumer,
    admission: AdmissionControl,
) -> None:
    """Admit a client and process its packets; raise `TimeoutError` if it is silent."""
    try:
        listener, slots = await admission.admit_mqtt_client(connect, live_socket)
    except ThingwayError as error:
        unknown = isinstance(error, Unauthenticated)
        code = ConnackCode.NOT_AUTHORIZED if unknown else ConnackCode.UNAVAILABLE
        await live_socket.send(encode_connack(code))
        live_socket.close(POLICY, error.text)
        return
    hub = events.hub
    hub.add(listener)
    try:
        await events.wait_until_subscribed(listener.principal.tenant)
        await live_socket.send(encode_connack(ConnackCode.ACCEPTED))
        await _process_packets(live_socket, packets, connect, listener, hub)
    finally:
        slots.release()
        hub.mqtt_publisher.remove_listener(listener)
        hub.remove(listener)


async def _process_packets(
    live_socket: LiveSocket,
    packets: AsyncIterator[Packet],
    connect: Connect,
    listener: MqttListener,
    hub: Hub,
) -> None:
    promised = int.from_bytes(connect.keep_alive, "big") * KEEP_ALIVE_FACTOR
    silence = min(promised or MAX_SILENCE_SECONDS, MAX_SILENCE_SECONDS)
    while True:
        async with asyncio.timeout(silence):
            packet = await anext(packets, None)
        match packet:
            case Ping():
                await live_socket.send(PINGRESP)
            case Subscribe(packet_id, filters):
                codes = [0 if topic == listener.topic else SUBACK_FAILURE for topic in filters]
                if 0 in codes:
                    hub.mqtt_publisher.add_listener(listener)
                await live_socket.send(encode_suback(packet_id, codes))
            case Unsubscribe(packet_id, filters):
                if listener.topic in filters:
                    hub.mqtt_publisher.remove_listener(listener)
                await live_socket.send(encode_unsuback(packet_id))
            case None:
                return
            case _:  # DISCONNECT, a second CONNECT, or PUBLISH, which 3.1.1 cannot reject
                live_socket.close(POLICY, f"{type(packet).__name__.upper()} ends the connection")
                return


async def _receive_packets(socket: WebSocket[Any, Any, Any]) -> AsyncIterator[Packet]:
    """Yield the packets of a client until it disconnects; raise `PacketError`."""
    stream = PacketStream()
    while True:
        try:
            data = await socket.receive_data(mode="binary")
        except WebSocketDisconnect:
            return
        if not data:  # also the case for a text frame
            raise PacketError("a frame must be binary and not empty")
        for packet in stream.split(data):
            yield packet


@dataclass(frozen=True)
class LiveHandlerDependencies:
    """Dependencies of the handlers."""

    events: LiveEventConsumer
    subscriptions: Subscriptions
    grants: GrantReader
    turns: SocketTurns
    admission: AdmissionControl


def create_router(handlers: LiveHandlerDependencies) -> Router:
    """Return the router of the endpoints, with their dependencies."""
    return Router(
        "/", route_handlers=[serve_websocket, serve_mqtt], dependencies=build_dependencies(handlers)
    )
