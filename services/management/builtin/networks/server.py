"""A network server of many tenants: a connection for each that has set a broker."""

import asyncio
import logging
import ssl
import time
from abc import abstractmethod
from typing import Any

import msgspec
from aiomqtt import Message, MqttError
from aiomqtt.exceptions import MqttConnectError

from libs.common.contracts.frames import MOST_FRAMES, CarryDownlinks, HookCall
from libs.common.contracts.integrations import (
    Acknowledged,
    AddDevice,
    DeviceRef,
    NewDevice,
    PropertiesUpdated,
)
from libs.common.errors import InvalidInput, NotFound, ThingwayError, TooManyRequests, Unavailable
from libs.common.integrations import Integration, IntegrationThings
from libs.common.jobs import ended
from libs.common.scheduling.turns import Steps, take_turns
from libs.common.store.mongo import StoreError
from services.management.builtin.networks import settings
from services.management.builtin.networks.heard import Carried, Heard, Queued, Route, dev_eui
from services.management.builtin.networks.mqtt import Connection, check_topic, connected
from services.management.builtin.networks.settings import Broker
from services.management.builtin.networks.state import SHOW_PAUSE, State
from services.management.builtin.networks.store import HOOK, NetworkStore
from services.management.builtin.networks.telling import Teller

log = logging.getLogger(__name__)

LOOK_EVERY = 30.0
"""Seconds between two looks at the settings; a change is heard of at once."""
LOOKS = 16
"""Tenants whose settings are looked at together."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two tries to connect."""
MOST_HOOKS = 32
"""Calls of a tenant's webhook that are in hand."""
STEADY = 60.0
"""Seconds of a connection after which the next try comes soon again."""


class Line:
    """What is held for one tenant: its connection, which comes back, and what is shown of it."""

    def __init__(self, server: "NetworkServer", tenant: str, uplinks: int) -> None:
        self._server = server
        self._tenant = tenant
        self.state = State(uplinks)
        self.teller = Teller(tenant, server.things, server.store, self.state)
        self.broker: Broker | None = None
        self.values: dict[str, Any] = {}
        self._fault = ""
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._hooks = 0
        self._unread = set[type[Exception]]()
        self._showing = asyncio.ensure_future(self._show())

    async def use(self, broker: Broker | None, values: dict[str, Any], fault: str = "") -> None:
        """Connect to a broker, unless it is the one that is connected to."""
        async with self._changing:
            if (broker, fault, values) == (self.broker, self._fault, self.values):
                return
            await self._disconnect()
            self.broker, self._fault, self.values = broker, fault, values
            self.state.down(fault)
            if broker is not None:
                self._connecting = asyncio.ensure_future(self._stay_connected(broker))

    async def publish(self, message: Queued, qos: int) -> None:
        """Publish; raise `Unavailable` while there is no connection."""
        if self._connection is None:
            raise Unavailable(f"not connected to the network server: {self.state.last_error}")
        try:
            await self._connection.publish(message.topic, message.payload, qos=qos)
        except MqttError as error:
            raise Unavailable(f"the network server took no downlink: {error}") from error

    async def take(self, heard: Heard | None) -> None:
        """Tell what a webhook has brought; raises what says that it was not taken."""
        if self._hooks >= MOST_HOOKS:
            raise TooManyRequests("this webhook is called too often at a time", retry_after=1.0)
        self._hooks += 1
        try:
            await self.teller.tell([] if heard is None else [heard])
        finally:
            self._hooks -= 1
        if self.broker is None:
            self.state.up()
        if heard is not None and heard.unreadable:
            self.state.failed(f"webhook: {heard.unreadable}")

    async def stop(self) -> None:
        """Disconnect, and show nothing any more."""
        async with self._changing:
            await self._disconnect()
        await ended(self._showing)

    async def _disconnect(self) -> None:
        if self._connecting is not None:
            await ended(self._connecting)
            self._connecting = None

    async def _stay_connected(self, broker: Broker) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                client_id = await self._server.store.client(self._tenant)
                async with connected(broker, client_id, self._server.allowed) as connection:
                    await self._serve(broker, connection)
            except (MqttError, OSError, TimeoutError, ThingwayError) as error:
                self.state.down(said(error))
            except StoreError as error:
                log.warning("%s of %s waits: %s", self._server.manifest.id, self._tenant, error)
                self.state.down("the platform's database does not answer")
            except Exception as error:
                log.exception("the connection of %s ends", self._tenant)
                self.state.down(said(error))
            finally:
                self._connection = None
            if time.monotonic() - began > STEADY:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _serve(self, broker: Broker, connection: Connection) -> None:
        topics = self._server.topics(broker, self.values)
        for topic in topics:
            check_topic(topic)
        await connection.listen(topics, await self._server.store.topics(self._tenant, topics))
        self._connection = connection
        self.state.up()
        async for batch in connection.batches(MOST_FRAMES):
            heard = [one for message in batch if (one := self._read(message)) is not None]
            await self.teller.tell_patiently(heard)
            connection.acknowledge(batch)

    def _read(self, message: Message) -> Heard | None:
        try:
            return self._server.read(self._tenant, message.topic.value, message.payload)
        except InvalidInput as error:
            self.state.failed(f"{message.topic.value}: {error.text}")
        except Exception as error:
            if type(error) not in self._unread:  # a broker may tell it as often as it likes
                self._unread.add(type(error))
                log.exception("a message of %s is not read", self._tenant)
            self.state.failed(f"{message.topic.value}: {type(error).__name__}")
        return None

    async def _show(self) -> None:
        shown: dict[str, Any] = {}
        while True:
            await self.state.news()
            now = self.state.properties()
            if now == shown:
                continue
            try:
                await self._server.things.own_report(self._tenant, now)
                shown = now
            except ThingwayError as error:
                log.warning("the state of %s is not shown: %s", self._tenant, error)
            await asyncio.sleep(SHOW_PAUSE)


def said(error: Exception) -> str:
    """Why there is no connection, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "the broker does not answer in time"
    if isinstance(error, ssl.SSLError):
        return f"TLS with the broker fails: {error.reason or error}"
    if isinstance(error, MqttConnectError):
        return f"the broker refuses the login: {error}"
    if isinstance(error, ConnectionRefusedError):
        return "nobody listens at the broker's address"
    text = error.strerror if isinstance(error, OSError) else ""
    text = error.text if isinstance(error, ThingwayError) else text
    return text or str(error) or type(error).__name__


class NetworkServer(Integration):
    """Base of network servers: a dialect says what their messages are.

    `run` connects tenants; what is asked of it (`downlink`) goes by their connections.
    """

    qos = 1
    """Of downlinks."""
    own_settings: tuple[str, ...] = ()
    """Settings besides those of the broker, on which topics or downlinks depend."""
    routed_by = "application"
    """The field of `Route` with which a device may be added, before anything is heard of it."""

    def __init__(
        self, things: IntegrationThings, store: NetworkStore, allowed: tuple[str, ...]
    ) -> None:
        self.things = things
        self.store = store
        self.allowed = allowed
        self._lines: dict[str, Line] = {}

    @abstractmethod
    def topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """What to subscribe to; raise `InvalidInput` naming the setting that is missing."""

    @abstractmethod
    def read(self, tenant: str, topic: str, payload: bytes) -> Heard | None:
        """A message; None for one that is nothing to us. Raises `InvalidInput`."""

    @abstractmethod
    def queue(self, carried: Carried, broker: Broker, values: dict[str, Any]) -> Queued:
        """A downlink as the server takes it."""

    def read_hook(self, tenant: str, body: bytes, values: dict[str, Any]) -> Heard | None:
        """What came to the webhook, as `read`; raise `InvalidInput` naming what is wrong."""
        raise NotFound("has no webhook")

    async def hook(self, call: HookCall) -> Acknowledged:
        """Take what came to a tenant's webhook; what is wrong with it is shown, too."""
        line = self._lines.get(call.tenant)
        if line is None:
            await self._look(call.tenant)
            line = self._line(call.tenant)
        try:
            heard = self.read_hook(call.tenant, call.body, line.values)
        except InvalidInput as error:
            line.state.failed(f"webhook: {error.text}")
            raise
        await line.take(heard)
        return Acknowledged()

    async def add_device(self, wanted: AddDevice) -> NewDevice:
        """A device by its DevEUI, as the server knows it."""
        given = wanted.params
        routed = str(given.get(self.routed_by) or "").strip()
        return NewDevice(
            identifier=dev_eui(given["dev_eui"], "dev_eui"),
            model=given["model"],
            additional={self.routed_by: routed} if routed else {},
        )

    async def delete_device(self, device: DeviceRef) -> None:
        """Let a device go; the server keeps it."""
        await self.store.forget(device.tenant, device.identifier)

    async def updated(self, change: PropertiesUpdated) -> None:
        """Take secrets, and connect with what is set now; raises `InvalidInput`."""
        given, tenant = change.properties, change.tenant
        settings.check(given, self.allowed)
        values = (await self.things.own_values(tenant)).properties | given
        await self.store.client(tenant)
        for name in settings.SECRETS:
            if given.get(name):
                await self.store.keep_secret(tenant, name, given[name], settings.bound_to(values))
        if given.get(HOOK):
            await self.store.keep_hook(tenant, given[HOOK])
        await self._use(tenant, values)

    async def downlink(self, wanted: CarryDownlinks) -> None:
        """Queue bytes for a device at its server; what was queued before is passed over."""
        device = wanted.device
        route = await self._route(device)
        line = self._line(device.tenant)
        for downlink in wanted.downlinks:
            if await self.store.take(device.tenant, device.identifier, downlink.id):
                reference = self.store.reference(device.tenant, downlink.id)
                carried = Carried(device.identifier, route, downlink, reference)
                await self._carry(line, carried)
                await self.store.queued(device.tenant, downlink.id)

    async def _carry(self, line: Line, carried: Carried) -> None:
        if line.broker is None:
            raise Unavailable("no network server is set, or its settings do not fit")
        await line.publish(self.queue(carried, line.broker, line.values), self.qos)

    async def _route(self, device: DeviceRef) -> Route:
        known = await self.store.route(device.tenant, device.identifier)
        if known is not None:
            return known
        given = device.additional.get(self.routed_by)
        if not given:
            text = f"nothing was heard of it, and it was added without {self.routed_by}"
            raise Unavailable(text)
        return msgspec.convert({self.routed_by: str(given)}, Route)

    async def run(self) -> None:
        """Keep tenants connected, for ever."""
        name = f"{self.manifest.id} settings"
        try:
            await take_turns(name, LOOKS, self.store.tenants, self._steps, LOOK_EVERY)
        finally:
            await asyncio.gather(*(line.stop() for line in self._lines.values()))

    async def _steps(self, tenant: str) -> Steps:
        await self._look(tenant)
        yield

    async def _look(self, tenant: str) -> None:
        try:
            await self._use(tenant, (await self.things.own_values(tenant)).properties)
        except ThingwayError as error:
            log.warning("%s: the settings of %s: %s", self.manifest.id, tenant, error)

    async def _use(self, tenant: str, values: dict[str, Any]) -> None:
        line = self._line(tenant, values)
        mine = {name: settings.text_of(values, name) for name in self.own_settings}
        try:
            broker = await settings.broker_of(self.store, tenant, values, self.allowed)
        except InvalidInput as error:
            await line.use(None, mine, error.text)
        else:
            await line.use(broker, mine)

    def _line(self, tenant: str, values: dict[str, Any] | None = None) -> Line:
        found = self._lines.get(tenant)
        if found is None:
            found = self._lines[tenant] = Line(self, tenant, (values or {}).get("uplinks") or 0)
        return found
