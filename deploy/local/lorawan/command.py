"""`thingway simulate lorawan`: a simulated network server and its sensors."""

import asyncio
import itertools
import time
import zlib
from argparse import Namespace
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import aiomqtt
import msgspec
from rich.console import Console

from deploy.local.lorawan.sensors import Sensor, Uplink, UplinkDecoder, build_dev_eui, find_uplinks
from deploy.local.lorawan.servers import ChirpStack, PublishedMessage, ServerFormat, TheThingsStack
from deploy.local.products import open_platform
from deploy.local.simulate import run_with_display
from deploy.local.supervisor import RestartBackoff
from deploy.platform import console
from deploy.platform import state as states
from deploy.platform.errors import CommandError
from deploy.platform.files import read_text_file
from deploy.platform.openapi import ApiRejected, ManagementApiClient, OpenApiClient
from libs.common.jobs import gather_limited, run_until_first_ends
from libs.common.tls import DEFAULT_PORT_BY_MQTT_SCHEME, trusting_context
from libs.common.tsl import parse_document
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.things.product_model import ProductCodec, extract_codec

_CONCURRENT_REQUESTS = 8
_POLL_SECONDS, _MAX_POLLS = 0.5, 40
"""Seconds between checks of the integration's connection, and their number."""
_CONFLICT, _NOT_FOUND = 409, 404


@dataclass(frozen=True)
class Broker:
    """The MQTT broker of an integration, and the names in its topics."""

    url: str
    username: str
    ca: str
    """PEM of the trusted authority; empty for those of the system."""
    application: str


def connect_management(options: Namespace) -> ManagementApiClient:
    """Connect to the management API as the first user or the user in the options."""
    state, addresses = states.load_with_addresses(options.data)
    if state.user is None:
        raise CommandError(f"the first start with data in {options.data} is not complete")
    login = (state.user.email, state.user.password)
    if options.email or options.email_password_file:
        login = (options.email or state.user.email, read_optional_file(options.email_password_file))
    return ManagementApiClient(
        addresses.base_url, console.console_client(state), login, addresses.ca_file
    )


def read_optional_file(file: Path | None) -> str:
    """Return the text of a file without the last line end; empty for no file.

    Raises `CommandError` if the file cannot be read.
    """
    return read_text_file(file).rstrip("\r\n") if file else ""


async def find_broker(api: ManagementApiClient, server: str, options: Namespace) -> Broker:
    """Return the broker in the options, by default that of the integration.

    Raises `CommandError` if neither exists.
    """
    properties = await _read_properties(api, server)
    url, username = (
        options.broker or properties["broker"],
        options.username or properties["username"],
    )
    if not url:
        raise CommandError(f"{server} has no broker: set one in the console, or add --broker")
    ca = read_optional_file(options.ca_file) or properties["ca"]
    return Broker(url, username or "", ca or "", properties.get("application") or "")


async def configure_broker(
    api: ManagementApiClient, server: str, broker: Broker, password: str
) -> None:
    """Configure the integration to connect to a broker."""
    settings = {"broker": broker.url, "username": broker.username, "ca": broker.ca}
    settings |= {"password": password} if password else {}
    exchange = {f"{server}.integration.{name}": value for name, value in settings.items()}
    await api.request("POST", "/entity/property/update", {"exchange": exchange})


async def wait_connected(api: ManagementApiClient, server: str) -> None:
    """Wait until the integration is connected; raise `CommandError` after 20 s."""
    for _ in range(_MAX_POLLS):
        properties = await _read_properties(api, server)
        if properties["connected"]:
            return
        await asyncio.sleep(_POLL_SECONDS)
    raise CommandError(
        f"{server} is not connected to its broker: {properties['last_error'] or '…'}"
    )


async def _read_properties(api: ManagementApiClient, server: str) -> dict[str, Any]:
    """Return the properties of an integration."""
    integration = await api.request("GET", f"/integration/{server}")
    return {
        entity["key"].rpartition(".")[2]: entity.get("value")
        for entity in integration["integration_entities"]
        if entity["type"] == "PROPERTY"
    }


def parse_address(broker: str) -> tuple[str, int, bool]:
    """Return host, port and TLS use of `mqtts://host:port`; raise `CommandError`."""
    try:
        parts = urlsplit(broker)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise CommandError(f"{broker} is not a valid address: {error}") from error
    if not host or parts.scheme not in DEFAULT_PORT_BY_MQTT_SCHEME:
        raise CommandError(f"{broker} is not mqtts://host:port or mqtt://host:port")
    return host, port or DEFAULT_PORT_BY_MQTT_SCHEME[parts.scheme], parts.scheme == "mqtts"


async def generate_uplinks(
    api: OpenApiClient, workers: CodecWorkers, model: str, seed: int
) -> list[Uplink]:
    """Return uplinks for a product, equal for equal seeds.

    Raises `CommandError` if the product or its codec does not exist, or if the codec accepts no
    uplink.
    """
    path = f"/device/openapi/v1/products/{model}"
    try:
        product = await api.request("GET", path)
        stored = msgspec.convert(await api.request("GET", f"{path}/codec"), ProductCodec)
    except ApiRejected as error:
        if error.status != _NOT_FOUND:
            raise
        hint = "`thingway product import-template` creates products with codecs"
        raise CommandError(f"{error} ({hint})") from error
    decoder = UplinkDecoder(
        workers, extract_codec(stored), parse_document(product["tsl"], stored=True)
    )
    examples = [Uplink(each.port, each.content()) for each in stored.examples]
    rng = Random(f"{seed} {model}")  # noqa: S311 - not a secret; runs are repeatable
    try:
        return await find_uplinks(decoder, examples, rng)
    except CommandError as error:
        raise CommandError(f"{model}: {error}") from error


def create_sensors(
    server: str, models: dict[str, list[Uplink]], count: int, seed: int
) -> list[Sensor]:
    """Return `count` sensors of a server, alternating between the products."""
    names = list(models)
    sensors = []
    for index in range(count):
        model, number = names[index % len(names)], index // len(names) + 1
        rng = Random(f"{seed} {server} {model} {number}")  # noqa: S311 - not a secret
        turn = zlib.crc32(f"{seed}{number}".encode())
        eui = build_dev_eui(server, model, number)
        sensors.append(Sensor(eui, model, models[model], rng, turn=turn))
    return sensors


async def register_sensors(api: ManagementApiClient, server: str, sensors: list[Sensor]) -> int:
    """Add sensors to the platform; return how many it did not have before."""

    async def add_sensor(sensor: Sensor) -> bool:
        prefix = f"{server}.integration.add_device"
        body: dict[str, Any] = {
            "name": f"Simulated {sensor.model} {int(sensor.eui[-6:], 16)}"[:64],
            "integration": server,
            "param_entities": {f"{prefix}.dev_eui": sensor.eui, f"{prefix}.model": sensor.model},
        }
        try:
            await api.request("POST", "/device", body)
        except ApiRejected as error:
            if error.status != _CONFLICT:
                raise
            return False
        return True

    additions = (partial(add_sensor, sensor) for sensor in sensors)
    return sum(await gather_limited(_CONCURRENT_REQUESTS, additions))


DEFAULT_CHIRPSTACK_APPLICATION = "5eed0000-0000-4000-8000-000000000001"
"""Simulated ChirpStack application id, if the integration accepts all applications."""
_DUPLICATE_SHARE = 0.03
"""Share of uplinks that are published again, received by another gateway."""
_JOIN_SHARE, _STATUS_SHARE = 0.002, 0.02
"""Share of uplinks with a new join before, and with a battery status after them."""


@dataclass
class NetworkCounters:
    """Counters of the simulated network server."""

    uplinks: int = 0
    duplicates: int = 0
    lost: int = 0
    joins: int = 0
    statuses: int = 0
    downlinks: int = 0
    sent: int = 0
    acknowledged: int = 0
    invalid: int = 0
    """Downlinks that could not be decoded."""
    last_error: str = ""
    started: float = field(default_factory=time.monotonic)
    _before: int = 0

    def format_activity(self, seconds: float) -> str:
        """Return the rate of the `seconds` since the previous call, and the downlinks."""
        before, self._before = self._before, self.uplinks
        return (
            f"{(self.uplinks - before) / seconds:.1f} uplinks/s  {self.downlinks} downlinks "
            f"received, {self.sent} sent{f'  ({self.last_error})' if self.last_error else ''}"
        )

    def format_totals(self) -> str:
        """Return a line with the totals."""
        seconds = time.monotonic() - self.started
        return (
            f"{self.uplinks} uplinks published, {self.duplicates} of them twice, {self.lost} lost; "
            f"{self.joins} joins, {self.statuses} statuses; {self.downlinks} downlinks received, "
            f"{self.invalid} invalid, {self.sent} sent, {self.acknowledged} acknowledged; "
            f"in {seconds:.1f} s ({self.uplinks / seconds:.1f}/s)"
        )


async def simulate(options: Namespace) -> None:
    """Simulate a network server until Ctrl-C or for `duration` seconds."""
    out = Console()
    async with open_platform(options.data) as api, CodecWorkers() as workers:
        models = {
            model: await generate_uplinks(api, workers, model, options.seed)
            for model in options.model
        }
    sensors = create_sensors(options.server, models, options.devices, options.seed)
    password = read_optional_file(options.password_file)
    async with connect_management(options) as api:
        broker = await find_broker(api, options.server, options)
        if options.connect:
            await configure_broker(api, options.server, broker, password)
        await _check_login(broker, password)
        new = await register_sensors(api, options.server, sensors)
        await wait_connected(api, options.server)
    out.print(f"{len(sensors)} sensors, {new} of them new, at {broker.url}", soft_wrap=True)
    network = SimulatedNetwork(
        create_server_format(options.server, broker), sensors, options.rate, options.loss
    )
    await run_with_display(out, network.counts, [network.run(broker, password)], options.duration)


def create_server_format(kind: str, broker: Broker) -> ServerFormat:
    """Return the message format of a server of kind `chirpstack` or `tts`.

    Raises `CommandError` for `tts` without a user name.
    """
    if kind == "chirpstack":
        return ChirpStack(broker.application or DEFAULT_CHIRPSTACK_APPLICATION)
    if not broker.username:
        raise CommandError("--server tts requires a user name (application@tenant): add --username")
    return TheThingsStack(broker.username)


class SimulatedNetwork:
    """Simulated class A sensors and their server, with a total rate of uplinks."""

    def __init__(
        self, server: ServerFormat, sensors: Iterable[Sensor], rate: float, loss: float
    ) -> None:
        """`rate` is in uplinks/s; `loss` is the share of lost uplinks and downlinks."""
        self.counts = NetworkCounters()
        self.downlinks = server.downlinks
        """Topic filter of downlinks from the platform."""
        self._server = server
        self._sensors = {sensor.eui: sensor for sensor in sensors}
        self._rate = rate
        self._loss = loss

    async def run(self, broker: Broker, password: str) -> None:
        """Stay connected and publish uplinks; reconnect with pauses, until cancelled."""
        backoff = RestartBackoff()
        while True:
            started = time.monotonic()
            try:
                async with connect_broker(broker, password) as client:
                    await self.serve(client)
            except (aiomqtt.MqttError, OSError) as error:
                self.counts.last_error = str(error) or type(error).__name__
                await asyncio.sleep(backoff.next_pause_seconds(time.monotonic() - started))

    async def serve(self, client: aiomqtt.Client) -> None:
        """Publish uplinks and receive downlinks while the connection lasts."""
        await client.subscribe(self.downlinks, qos=1)
        self.counts.last_error = ""
        await run_until_first_ends(self.receive_downlinks(client), self._publish_uplinks(client))

    async def _publish_uplinks(self, client: aiomqtt.Client) -> None:
        due = time.monotonic()
        for sensor in itertools.cycle(self._sensors.values()):
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due = max(due + 1 / self._rate, time.monotonic() - 1.0)
            for message in self.build_uplink_messages(sensor, datetime.now(UTC)):
                await client.publish(message.topic, message.payload, qos=self._server.qos)

    async def receive_downlinks(self, client: aiomqtt.Client) -> None:
        """Queue downlinks for their sensors, until cancelled."""
        async for message in client.messages:
            sensor = self._sensors.get(self._server.parse_dev_eui(message.topic.value))
            if sensor is None:
                continue
            try:
                received = self._server.decode_downlinks(message.payload)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                self.counts.invalid += 1
                self.counts.last_error = f"cannot decode a downlink: {error!r}"
                continue
            queued_names = {queued.name for queued in sensor.queue}
            sensor.queue += [downlink for downlink in received if downlink.name not in queued_names]
            self.counts.downlinks += len(received)

    def build_uplink_messages(self, sensor: Sensor, at: datetime) -> list[PublishedMessage]:
        """Return the server's messages for the next uplink of a sensor."""
        server, counts, rng = self._server, self.counts, sensor.rng
        messages: list[PublishedMessage] = []
        if not sensor.address or rng.random() < _JOIN_SHARE:
            sensor.start_session()
            counts.joins += 1
            messages.append(server.build_join(sensor, at))
        sensor.counter += 1
        uplink, radio = sensor.next_uplink(), sensor.choose_radio()
        if rng.random() < self._loss:
            counts.lost += 1
            return messages
        messages += self._build_acknowledgements(sensor, at)
        messages.append(server.build_uplink(sensor, uplink, radio, at))
        counts.uplinks += 1
        if rng.random() < _DUPLICATE_SHARE:
            counts.duplicates += 1
            messages.append(server.build_uplink(sensor, uplink, sensor.choose_radio(), at))
        status = server.build_status(sensor, at) if rng.random() < _STATUS_SHARE else None
        if status is not None:
            counts.statuses += 1
            messages.append(status)
        if sensor.queue:
            sensor.pending = sensor.queue.popleft()
            counts.sent += 1
            messages.append(server.build_sent_event(sensor, sensor.pending, at))
        return messages

    def _build_acknowledgements(self, sensor: Sensor, at: datetime) -> list[PublishedMessage]:
        """Return the ack or nack after a confirmed downlink."""
        downlink, sensor.pending = sensor.pending, None
        if downlink is None or not downlink.confirmed:
            return []
        is_received = sensor.rng.random() >= self._loss
        self.counts.acknowledged += is_received
        return [self._server.build_acknowledgement(sensor, downlink, at, acknowledged=is_received)]


async def _check_login(broker: Broker, password: str) -> None:
    """Raise `CommandError` if the broker rejects the connection."""
    try:
        async with connect_broker(broker, password):
            return
    except (aiomqtt.MqttError, OSError) as error:
        hint = "" if password or not broker.username else " (set the password with --password-file)"
        raise CommandError(f"{broker.url}: {str(error) or type(error).__name__}{hint}") from None


@asynccontextmanager
async def connect_broker(broker: Broker, password: str) -> AsyncIterator[aiomqtt.Client]:
    """Connect to the broker; raise `MqttError` or `OSError`."""
    host, port, tls = parse_address(broker.url)
    context = trusting_context(ca_pem=broker.ca) if tls else None
    async with aiomqtt.Client(
        host,
        port,
        username=broker.username or None,
        password=password or None,
        tls_context=context,
    ) as client:
        yield client
