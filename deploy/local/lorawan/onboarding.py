"""What a simulated network needs on the platform: products that are read, sensors, a broker."""

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

from deploy.local.lorawan.sensors import Reader, Sensor, Uplink, dev_eui, find_uplinks
from deploy.platform import console
from deploy.platform import state as states
from deploy.platform.errors import CommandError
from deploy.platform.files import read_given_text
from deploy.platform.openapi import ApiRefused, ManagementApi, OpenApi
from libs.common.jobs import gather_limited
from libs.common.tls import MQTT_PORTS
from libs.common.tsl import parse_document
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.things.product_model import ProductCodec, codec_of

_AT_ONCE = 8
_LOOK, _LOOKS = 0.5, 40
"""Seconds between two looks at whether the integration is connected, and how many there are."""
_CONFLICT, _NOT_FOUND = 409, 404


@dataclass(frozen=True)
class Place:
    """The broker of the integration, and the names by which its topics go."""

    broker: str
    username: str
    ca: str
    """PEM of whom to trust; empty for the authorities of the system."""
    application: str


def management(given: Namespace) -> ManagementApi:
    """The management API of the platform of a directory, as its first user or the one named."""
    state, addresses = states.load_addressed(given.data)
    if state.user is None:
        raise CommandError(f"the first start with data in {given.data} is not complete")
    login = (state.user.email, state.user.password)
    if given.email or given.email_password_file:
        login = (given.email or state.user.email, text_of(given.email_password_file))
    return ManagementApi(addresses.base_url, console.client(state), login, addresses.ca_file)


def text_of(file: Path | None) -> str:
    """What a file has, without the end of its line; empty for none. Raises `CommandError`."""
    return read_given_text(file).rstrip("\r\n") if file else ""


async def place_of(api: ManagementApi, server: str, given: Namespace) -> Place:
    """The broker that the integration is connected to, or the one that is given.

    Raises `CommandError` when there is neither.
    """
    own = await _own(api, server)
    broker, username = given.broker or own["broker"], given.username or own["username"]
    if not broker:
        raise CommandError(f"{server} has no broker: set one in the console, or give --broker")
    ca = text_of(given.ca_file) or own["ca"]
    return Place(broker, username or "", ca or "", own.get("application") or "")


async def connect(api: ManagementApi, server: str, place: Place, password: str) -> None:
    """Have the integration connect to a broker."""
    settings = {"broker": place.broker, "username": place.username, "ca": place.ca}
    settings |= {"password": password} if password else {}
    exchange = {f"{server}.integration.{name}": value for name, value in settings.items()}
    await api.request("POST", "/entity/property/update", {"exchange": exchange})


async def heard(api: ManagementApi, server: str) -> None:
    """Wait until the integration listens to its broker; raise `CommandError` with what it says."""
    for _ in range(_LOOKS):
        own = await _own(api, server)
        if own["connected"]:
            return
        await asyncio.sleep(_LOOK)
    raise CommandError(f"{server} is not connected to its broker: {own['last_error'] or '…'}")


async def _own(api: ManagementApi, server: str) -> dict[str, Any]:
    """The properties of an integration."""
    told = await api.request("GET", f"/integration/{server}")
    return {
        one["key"].rpartition(".")[2]: one.get("value")
        for one in told["integration_entities"]
        if one["type"] == "PROPERTY"
    }


def address_of(broker: str) -> tuple[str, int, bool]:
    """Host, port and whether it is TLS of `mqtts://host:port`; raise `CommandError`."""
    try:
        parts = urlsplit(broker)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise CommandError(f"{broker} is no address: {error}") from error
    if not host or parts.scheme not in MQTT_PORTS:
        raise CommandError(f"{broker} is not mqtts://host:port or mqtt://host:port")
    return host, port or MQTT_PORTS[parts.scheme], parts.scheme == "mqtts"


async def uplinks_of(api: OpenApi, workers: CodecWorkers, model: str, seed: int) -> list[Uplink]:
    """Uplinks of a product of the platform, the same for the same seed; raise `CommandError`."""
    path = f"/device/openapi/v1/products/{model}"
    try:
        product = await api.request("GET", path)
        stored = msgspec.convert(await api.request("GET", f"{path}/codec"), ProductCodec)
    except ApiRefused as error:
        if error.status != _NOT_FOUND:
            raise
        hint = "thingway product import-template makes products with codecs"
        raise CommandError(f"{error} ({hint})") from error
    reader = Reader(workers, codec_of(stored), parse_document(product["tsl"], stored=True))
    examples = [Uplink(one.port, one.content()) for one in stored.examples]
    rng = Random(f"{seed} {model}")  # noqa: S311 - no secret; a run can be repeated
    try:
        return await find_uplinks(reader, examples, rng)
    except CommandError as error:
        raise CommandError(f"{model}: {error}") from error


def sensors_of(server: str, models: dict[str, list[Uplink]], count: int, seed: int) -> list[Sensor]:
    """So many sensors at a server, of each product in turn."""
    names = list(models)
    made = []
    for place in range(count):
        model, number = names[place % len(names)], place // len(names) + 1
        rng = Random(f"{seed} {server} {model} {number}")  # noqa: S311 - no secret
        turn = zlib.crc32(f"{seed}{number}".encode())
        made.append(Sensor(dev_eui(server, model, number), model, models[model], rng, turn=turn))
    return made


async def register(api: ManagementApi, server: str, sensors: list[Sensor]) -> int:
    """Add the sensors that the platform does not have; how many were new."""

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
