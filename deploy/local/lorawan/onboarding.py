"""Preparation of a simulated network: product, sensors, broker and integration."""

import asyncio
import zlib
from argparse import Namespace
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import msgspec

from deploy.local.lorawan.sensors import Sensor, Uplink, UplinkDecoder, dev_eui, find_uplinks
from deploy.platform import console
from deploy.platform import state as states
from deploy.platform.errors import CommandError
from deploy.platform.files import read_text_file
from deploy.platform.openapi import ApiRefused, ManagementApi, OpenApi
from libs.common.jobs import gather_limited
from libs.common.tls import MQTT_PORTS
from libs.common.tsl import parse_document
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.things.product_model import ProductCodec, codec_of

_AT_ONCE = 8
_POLL_SECONDS, _POLLS = 0.5, 40
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


def connect_management(given: Namespace) -> ManagementApi:
    """Connect to the management API as the first user or the user in the options."""
    state, addresses = states.load_addressed(given.data)
    if state.user is None:
        raise CommandError(f"the first start with data in {given.data} is not complete")
    login = (state.user.email, state.user.password)
    if given.email or given.email_password_file:
        login = (given.email or state.user.email, read_line(given.email_password_file))
    return ManagementApi(addresses.base_url, console.client(state), login, addresses.ca_file)


def read_line(file: Path | None) -> str:
    """Return the content of a file without its line end; empty if no file is given.

    Raises `CommandError` if the file cannot be read.
    """
    return read_text_file(file).rstrip("\r\n") if file else ""


async def find_broker(api: ManagementApi, server: str, given: Namespace) -> Broker:
    """Return the broker in the options, by default that of the integration.

    Raises `CommandError` if neither exists.
    """
    properties = await _read_properties(api, server)
    url, username = given.broker or properties["broker"], given.username or properties["username"]
    if not url:
        raise CommandError(f"{server} has no broker: set one in the console, or add --broker")
    ca = read_line(given.ca_file) or properties["ca"]
    return Broker(url, username or "", ca or "", properties.get("application") or "")


async def configure_broker(api: ManagementApi, server: str, broker: Broker, password: str) -> None:
    """Configure the integration to connect to a broker."""
    settings = {"broker": broker.url, "username": broker.username, "ca": broker.ca}
    settings |= {"password": password} if password else {}
    exchange = {f"{server}.integration.{name}": value for name, value in settings.items()}
    await api.request("POST", "/entity/property/update", {"exchange": exchange})


async def wait_connected(api: ManagementApi, server: str) -> None:
    """Wait until the integration is connected; raise `CommandError` otherwise."""
    for _ in range(_POLLS):
        properties = await _read_properties(api, server)
        if properties["connected"]:
            return
        await asyncio.sleep(_POLL_SECONDS)
    raise CommandError(
        f"{server} is not connected to its broker: {properties['last_error'] or '…'}"
    )


async def _read_properties(api: ManagementApi, server: str) -> dict[str, Any]:
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
    if not host or parts.scheme not in MQTT_PORTS:
        raise CommandError(f"{broker} is not mqtts://host:port or mqtt://host:port")
    return host, port or MQTT_PORTS[parts.scheme], parts.scheme == "mqtts"


async def generate_uplinks(
    api: OpenApi, workers: CodecWorkers, model: str, seed: int
) -> list[Uplink]:
    """Return uplinks for a product, equal for equal seeds; raise `CommandError`."""
    path = f"/device/openapi/v1/products/{model}"
    try:
        product = await api.request("GET", path)
        stored = msgspec.convert(await api.request("GET", f"{path}/codec"), ProductCodec)
    except ApiRefused as error:
        if error.status != _NOT_FOUND:
            raise
        hint = "`thingway product import-template` creates products with codecs"
        raise CommandError(f"{error} ({hint})") from error
    decoder = UplinkDecoder(workers, codec_of(stored), parse_document(product["tsl"], stored=True))
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
        sensors.append(Sensor(dev_eui(server, model, number), model, models[model], rng, turn=turn))
    return sensors


async def register(api: ManagementApi, server: str, sensors: list[Sensor]) -> int:
    """Add the sensors that the platform does not know; return their number."""

    async def add(sensor: Sensor) -> bool:
        prefix = f"{server}.integration.add_device"
        body: dict[str, Any] = {
            "name": f"Simulated {sensor.model} {int(sensor.eui[-6:], 16)}"[:64],
            "integration": server,
            "param_entities": {f"{prefix}.dev_eui": sensor.eui, f"{prefix}.model": sensor.model},
        }
        try:
            await api.request("POST", "/device", body)
        except ApiRefused as error:
            if error.status != _CONFLICT:
                raise
            return False
        return True

    return sum(await gather_limited(_AT_ONCE, (partial(add, sensor) for sensor in sensors)))
