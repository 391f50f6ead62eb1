"""What the others hear: every message that reaches a listener of a household is remembered."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiomqtt
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from libs.common.bus import SecureClient
from tests.adversary.town import Home
from tests.contract.live import Socket, opened
from tests.e2e.listening import connect
from tests.e2e.waiting import PATIENCE

Json = dict[str, Any]


@dataclass(frozen=True)
class Heard:
    """A message, with the name of the listener that received it."""

    ear: str
    subject: str
    data: bytes

    @property
    def body(self) -> Json:
        """Return the content; empty when it is not from the platform."""
        with suppress(ValueError):
            found = json.loads(self.data)
            return found if isinstance(found, dict) else {}
        return {}


class Ears:
    """The listeners of a household, from MQTT to the WebSocket."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.heard: list[Heard] = []
        self.device_nats: NatsClient
        self.mqtt: aiomqtt.Client
        self.durable: JetStreamContext.PullSubscription
        self._more = asyncio.Event()

    def hear(self, ear: str, subject: str, data: bytes) -> None:
        """Remember a message."""
        self.heard.append(Heard(ear, subject, data))
        self._more.set()

    async def wait(self, ear: str, matches: Callable[[Heard], bool]) -> Heard:
        """Return the first matching message of a listener, received already or later."""
        seen = 0
        async with asyncio.timeout(PATIENCE):
            while True:
                self._more.clear()
                for one in self.heard[seen:]:
                    if one.ear == ear and matches(one):
                        return one
                seen = len(self.heard)
                await self._more.wait()

    def on_nats(self, ear: str) -> Callable[[Msg], Any]:
        """Return a callback for a subscription."""

        async def record(message: Msg) -> None:
            self.hear(ear, message.subject, message.data)

        return record

    async def on_mqtt(self, ear: str, client: aiomqtt.Client) -> None:
        """Record the messages of a connection until it ends."""
        with suppress(aiomqtt.MqttError):
            async for message in client.messages:
                self.hear(ear, str(message.topic), bytes(message.payload))

    async def on_socket(self, socket: Socket) -> None:
        """Record the messages of a WebSocket until it closes."""
        async for message in socket.socket:
            self.hear("websocket", "", str(message.data).encode())
        self.hear("websocket", "closed", str(socket.socket.close_code).encode())


@asynccontextmanager
async def listening(home: Home) -> AsyncIterator[Ears]:
    """Open every listener of a household; its sleeper's session is left with a command."""
    ears = Ears(home)
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(_tasks())
        for qos in (0, 1):
            client = await stack.enter_async_context(_mqtt(home, qos))
            tasks.append(asyncio.create_task(ears.on_mqtt(f"mqtt-{qos}", client)))
            ears.mqtt = client
        ears.device_nats = await stack.enter_async_context(home.device.nats())
        sn = home.device.sn
        for subject in (f"thing.{sn}.down.>", f"_INBOX.sn.{sn}.ear.>"):
            await ears.device_nats.subscribe(subject, cb=ears.on_nats("device-nats"))
        await ears.device_nats.flush()
        await _hear_application(ears, stack)
        await _hear_integration(ears, stack)
        socket = await stack.enter_async_context(opened(home.console))
        await socket.subscribe(home.value_key("counter"))
        tasks.append(asyncio.create_task(ears.on_socket(socket)))
        await _fall_asleep(home)
        yield ears


@asynccontextmanager
async def _tasks() -> AsyncIterator[list["asyncio.Task[None]"]]:
    tasks: list[asyncio.Task[None]] = []
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _mqtt(home: Home, qos: int) -> AsyncIterator[aiomqtt.Client]:
    client = home.device.mqtt(identifier=f"{home.device.sn}-{qos}").client
    async with client:
        await client.subscribe(f"thing/{home.device.sn}/down/#", qos=qos)
        yield client


async def _hear_application(ears: Ears, stack: AsyncExitStack) -> None:
    """Subscribe to live events and bind the durable consumer, which reads on demand."""
    home = ears.home
    client = await connect(
        home.platform, home.application.client_id, home.application.client_secret
    )
    stack.push_async_callback(client.close)
    await client.subscribe(f"event.{home.tenant}.>", cb=ears.on_nats("application"))
    inbox = f"_INBOX.app.{home.application.client_id}.ear.>"
    await client.subscribe(inbox, cb=ears.on_nats("application"))
    await client.flush()
    js = client.jetstream()
    config = ConsumerConfig(
        name=home.application.client_id,
        durable_name=home.application.client_id,
        filter_subject=f"event.{home.tenant}.>",
        ack_policy=AckPolicy.EXPLICIT,
    )
    await js.add_consumer("EVENTS", config)
    ears.durable = await js.pull_subscribe_bind(home.application.client_id, "EVENTS")


async def _hear_integration(ears: Ears, stack: AsyncExitStack) -> None:
    user = f"integration.{ears.home.integration}"
    client = SecureClient()
    await client.connect(
        f"nats://127.0.0.1:{ears.home.platform.nats_port}",
        user=user,
        password=ears.home.integration_secret,
        inbox_prefix=f"_INBOX.{user}".encode(),
    )
    stack.push_async_callback(client.close)
    for subject in (f"rpc.integration.{ears.home.integration}.>", f"_INBOX.{user}.ear.>"):
        await client.subscribe(subject, cb=ears.on_nats("integration"))
    await client.flush()


async def _fall_asleep(home: Home) -> None:
    """Leave a QoS 1 session whose connection has ended, with a command waiting in it."""
    async with home.sleeper.mqtt(identifier=f"{home.sleeper.sn}-away", clean=False):
        await home.sleeper.becomes("ONLINE")
    path = f"/devices/{home.sleeper.id}/properties"
    await home.application.started("PATCH", path, {"properties": {"led": True}})
    await home.sleeper.becomes("OFFLINE")
