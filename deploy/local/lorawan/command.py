"""`thingway simulate lorawan`: a network server's messages to its broker, without radio."""

import asyncio
import itertools
import ssl
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

import aiomqtt
from rich.console import Console

from deploy.local.lorawan import onboarding
from deploy.local.lorawan.onboarding import Place
from deploy.local.lorawan.sensors import Sensor
from deploy.local.lorawan.servers import ChirpStack, NetworkServer, Published, TheThingsStack
from deploy.local.products import Target
from deploy.local.simulate import shown
from deploy.local.supervisor import Backoff
from deploy.platform.errors import CommandError
from libs.common.jobs import together
from services.device.lorawan.codec_runner import CodecWorkers

APPLICATION = "5eed0000-0000-4000-8000-000000000001"
"""Of ChirpStack, when the integration hears all of them."""
_TWICE = 0.03
"""Part of the uplinks that are told again, by another gateway."""
_JOINS, _STATUS = 0.002, 0.02
"""Uplinks before which a sensor joins anew, after which it tells of its battery."""


@dataclass
class Counts:
    """What the server has said, and taken."""

    uplinks: int = 0
    twice: int = 0
    lost: int = 0
    joins: int = 0
    statuses: int = 0
    downlinks: int = 0
    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    """Downlinks that could not be read."""
    last_error: str = ""
    started: float = field(default_factory=time.monotonic)
    _before: int = 0

    def line(self, seconds: float) -> str:
        """The rate since the line before, and what there was of downlinks."""
        before, self._before = self._before, self.uplinks
        return (
            f"{(self.uplinks - before) / seconds:.1f} uplinks/s  {self.downlinks} downlinks "
            f"taken, {self.sent} sent{f'  ({self.last_error})' if self.last_error else ''}"
        )

    def totals(self) -> str:
        """What there was in all."""
        seconds = time.monotonic() - self.started
        return (
            f"{self.uplinks} uplinks told, {self.twice} of them twice, {self.lost} more lost; "
            f"{self.joins} joins, {self.statuses} statuses; {self.downlinks} downlinks taken, "
            f"{self.refused} not read, {self.sent} sent, {self.acknowledged} acknowledged; "
            f"in {seconds:.1f} s ({self.uplinks / seconds:.1f}/s)"
        )


async def simulate(given: Namespace) -> None:
    """Be a network server until Ctrl-C or for `duration` s."""
    out = Console()
    async with Target.of_directory(given.data).connect() as api, CodecWorkers() as workers:
        models = {
            one: await onboarding.uplinks_of(api, workers, one, given.seed) for one in given.model
        }
    sensors = onboarding.sensors_of(given.server, models, given.devices, given.seed)
    password = onboarding.text_of(given.password_file)
    async with onboarding.management(given) as api:
        place = await onboarding.place_of(api, given.server, given)
        if given.connect:
            await onboarding.connect(api, given.server, place, password)
        await _let_in(place, password)
        new = await onboarding.register(api, given.server, sensors)
        await onboarding.heard(api, given.server)
    out.print(f"{len(sensors)} sensors, {new} of them new, at {place.broker}", soft_wrap=True)
    network = Network(server_of(given.server, place), sensors, given.rate, given.loss)
    await shown(out, network.counts, [network.live(place, password)], given.duration)


def server_of(kind: str, place: Place) -> NetworkServer:
    """The messages of a kind of server; raise `CommandError` without a user name it needs."""
    if kind == "chirpstack":
        return ChirpStack(place.application or APPLICATION)
    if not place.username:
        raise CommandError("tts needs a user name, application@tenant: --username")
    return TheThingsStack(place.username)


class Network:
    """Sensors of class A and their server: uplinks at a total rate, downlinks after them."""

    def __init__(
        self, server: NetworkServer, sensors: Iterable[Sensor], rate: float, loss: float
    ) -> None:
        """`rate` is in uplinks/s, `loss` the part of uplinks and downlinks that nobody hears."""
        self.counts = Counts()
        self.downlinks = server.downlinks
        """The topic filter of what the platform wants to be sent."""
        self._server = server
        self._sensors = {sensor.eui: sensor for sensor in sensors}
        self._rate = rate
        self._loss = loss

    async def live(self, place: Place, password: str) -> None:
        """Be connected and say what sensors say; come back with pauses, for ever."""
        backoff = Backoff()
        while True:
            started = time.monotonic()
            try:
                async with connected(place, password) as client:
                    await self.serve(client)
            except (aiomqtt.MqttError, OSError) as error:
                self.counts.last_error = str(error) or type(error).__name__
                await asyncio.sleep(backoff.after(time.monotonic() - started))

    async def serve(self, client: aiomqtt.Client) -> None:
        """Say what sensors say, and take downlinks, while the connection holds."""
        await client.subscribe(self.downlinks, qos=1)
        self.counts.last_error = ""
        await together(self.take(client), self._say(client))

    async def _say(self, client: aiomqtt.Client) -> None:
        due = time.monotonic()
        for sensor in itertools.cycle(self._sensors.values()):
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due = max(due + 1 / self._rate, time.monotonic() - 1.0)
            for message in self.uplink(sensor, datetime.now(UTC)):
                await client.publish(message.topic, message.payload, qos=self._server.qos)

    async def take(self, client: aiomqtt.Client) -> None:
        """Put downlinks into the queues of their sensors, for ever."""
        async for message in client.messages:
            sensor = self._sensors.get(self._server.device(message.topic.value))
            if sensor is None:
                continue
            try:
                taken = self._server.read(message.payload)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                self.counts.refused += 1
                self.counts.last_error = f"a downlink that cannot be read: {error!r}"
                continue
            known = {one.name for one in sensor.queue}
            sensor.queue += [one for one in taken if one.name not in known]
            self.counts.downlinks += len(taken)

    def uplink(self, sensor: Sensor, at: datetime) -> list[Published]:
        """What the server tells as a sensor sends: what it answers, says, and then is sent."""
        server, counts, rng = self._server, self.counts, sensor.rng
        said: list[Published] = []
        if not sensor.address or rng.random() < _JOINS:
            sensor.join()
            counts.joins += 1
            said.append(server.join(sensor, at))
        sensor.counter += 1
        uplink, radio = sensor.next_uplink(), sensor.radio()
        if rng.random() < self._loss:
            counts.lost += 1
            return said
        said += self._answered(sensor, at)
        said.append(server.up(sensor, uplink, radio, at))
        counts.uplinks += 1
        if rng.random() < _TWICE:
            counts.twice += 1
            said.append(server.up(sensor, uplink, sensor.radio(), at))
        status = server.status(sensor, at) if rng.random() < _STATUS else None
        if status is not None:
            counts.statuses += 1
            said.append(status)
        if sensor.queue:
            sensor.heard = sensor.queue.popleft()
            counts.sent += 1
            said.append(server.sent(sensor, sensor.heard, at))
        return said

    def _answered(self, sensor: Sensor, at: datetime) -> list[Published]:
        """An uplink after a confirmed downlink says whether the sensor has heard it."""
        downlink, sensor.heard = sensor.heard, None
        if downlink is None or not downlink.confirmed:
            return []
        heard = sensor.rng.random() >= self._loss
        self.counts.acknowledged += heard
        return [self._server.answered(sensor, downlink, at, acknowledged=heard)]


async def _let_in(place: Place, password: str) -> None:
    """Raise `CommandError` when the broker does not let it in."""
    try:
        async with connected(place, password):
            return
    except (aiomqtt.MqttError, OSError) as error:
        hint = "" if password or not place.username else " (--password-file gives the password)"
        raise CommandError(f"{place.broker}: {str(error) or type(error).__name__}{hint}") from None


@asynccontextmanager
async def connected(place: Place, password: str) -> AsyncIterator[aiomqtt.Client]:
    """A connection to the broker, as the server has one; raises `MqttError` and `OSError`."""
    host, port, tls = onboarding.address_of(place.broker)
    context = ssl.create_default_context(cadata=place.ca or None) if tls else None
    async with aiomqtt.Client(
        host,
        port,
        username=place.username or None,
        password=password or None,
        tls_context=context,
    ) as client:
        yield client
