"""Public device templates behind simulated network servers, on the whole platform."""

import asyncio
import itertools
import os
import re
import zipfile
from argparse import Namespace
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from deploy.local.lorawan import command as onboarding
from deploy.local.lorawan.command import (
    Broker,
    SimulatedNetwork,
    connect_broker,
    create_server_format,
)
from deploy.local.lorawan.sensors import Sensor, Uplink, UplinkDecoder
from deploy.local.products import import_template, load_template, open_platform
from libs.common.clock import now_ms
from libs.common.jobs import run_in_background
from libs.common.tsl import TslDocument, plausible_properties
from services.device.lorawan.codec_calls import CodecCall
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.lorawan.codec_scripts import EncodedDownlink, parse_encoder_result
from services.device.registry.products.template_parser import Template
from services.device.things.codec_model import CodecFailed
from tests.e2e.callers import Console
from tests.e2e.platform import THINGWAY, Platform
from tests.e2e.waiting import until
from tests.integration.management.networks.conftest import (
    PASSWORD,
    USER,
    ServerBroker,
    running_broker,
)

pytestmark = pytest.mark.xdist_group("platform")

KINDS = ("chirpstack", "tts")
FEW = ("ws523",)
TEMPLATES = Path(__file__).with_name("templates.zip")
"""Thirty of https://github.com/Milesight-IoT/beaver-iot-blueprint, with their license (MIT)."""
OTHERS = os.environ.get("TEMPLATES", "")
"""A folder of other templates."""
WITHOUT_DOWNLINKS = {
    "uc1114",
    "uc1122",
    "uc1152",
    "uc11_n1",
    "uc11_t1",
    "vs121",
    "vs132",
    "ws136",
    "ws156",
} | {
    "ws501_v4",
    "ws502_v4",
    "ws503_v4",
}
"""Templates without a writable property that their encoders support."""
FOUND: dict[str, list[Uplink]] = {}
"""Uplinks by template, found once."""
MAX_DOWNLINK_BYTES = 51
"""Bytes that every data rate carries; some data rates refuse more."""
DRAWS = 20
"""Values of each property that are tried: encoders have bounds that templates do not declare."""
UPLINKS = 4
"""Uplinks of each sensor."""


@pytest.fixture
def templates(tmp_path: Path) -> Path:
    """Return the folder with the templates."""
    if OTHERS:
        return Path(OTHERS)
    with zipfile.ZipFile(TEMPLATES) as archive:
        archive.extractall(tmp_path)
    return tmp_path / "milesight-iot"


def first_user(platform: Platform) -> Namespace:
    """Return the command's options that let it act as the first user."""
    return Namespace(data=platform.directory, email="", email_password_file=None)


@pytest.mark.parametrize("kind", KINDS)
async def test_sensors_of_templates_report_and_get_commands(
    platform: Platform, console: Console, templates: Path, tmp_path: Path, kind: str
) -> None:
    """History has the decoder's values, and the server the encoder's bytes."""
    await try_templates(platform, console, kind, [templates / one for one in FEW], tmp_path)


@pytest.mark.slow
async def test_the_command_is_a_network(
    platform: Platform, console: Console, templates: Path, tmp_path: Path
) -> None:
    """It connects the integration, adds its sensors, and prints a summary."""
    login = {"url": None, "client_id": None, "client_secret": None}
    given = Namespace(template=templates / "ct101", model="SIM-1", data=platform.directory, **login)
    await import_template(given)
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    with running_broker(tmp_path) as broker:
        words = ["simulate", "lorawan", "--data", str(platform.directory), "--server", "tts"]
        words += ["--model", "SIM-1", "--devices", "3", "--rate", "50", "--duration", "1"]
        words += ["--connect", "--broker", broker.settings["broker"], "--username", USER]
        words += ["--password-file", str(password), "--ca-file", str(broker.files.ca_file)]
        done = await asyncio.create_subprocess_exec(THINGWAY, *words, stdout=PIPE)
        said, _ = await asyncio.wait_for(done.communicate(), 60)
        async with onboarding.connect_management(first_user(platform)) as api:
            await onboarding.configure_broker(api, "tts", Broker("", "", "", ""), "")
    assert done.returncode == 0, said
    assert b"3 sensors, 3 of them new" in said
    assert int(re.findall(rb"(\d+) uplinks published", said)[0]) > 0

    async def taken() -> bool:
        found = await console.data("GET", "/integration/tts")
        own = {one["key"]: one.get("value") for one in found["integration_entities"]}
        return bool(own["tts.integration.uplinks"]) and not own["tts.integration.not_taken"]

    await until(taken)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_sensors_of_all_templates_report_and_get_commands(
    platform: Platform, console: Console, templates: Path, tmp_path: Path, kind: str
) -> None:
    """Run the test above for every template."""
    await try_templates(platform, console, kind, template_folders(templates), tmp_path)


def template_folders(templates: Path) -> list[Path]:
    """Return the folders of the templates in a folder."""
    return sorted(one.parent for one in templates.glob("*/device-template.yaml"))


class Tried(NamedTuple):
    """A template as a product, with a sensor and its id on the platform."""

    template: Template
    reader: UplinkDecoder
    sensor: Sensor
    device: str


async def try_templates(
    platform: Platform, console: Console, kind: str, places: Sequence[Path], folder: Path
) -> None:
    """Let a sensor of each template report and receive a command."""
    with running_broker(folder) as broker:
        async with CodecWorkers() as workers, asyncio.timeout(60 + 5 * len(places)):
            tried = await products(platform, console, workers, kind, places)
            async with network_of(platform, kind, broker, tried) as (network, client):
                faults: list[str] = []
                await report(console, network, client, tried, faults)
                await write(console, workers, kind, network, client, tried, faults)
                assert not faults


async def products(
    platform: Platform,
    console: Console,
    workers: CodecWorkers,
    kind: str,
    places: Sequence[Path],
) -> list[Tried]:
    """Import templates, and add a sensor of each."""
    tried = []
    async with open_platform(platform.directory) as api:
        for place in places:
            model = f"{place.name.upper()}-{kind.upper()}"
            login = {"url": None, "client_id": None, "client_secret": None}
            given = Namespace(template=place, model=model, data=platform.directory, **login)
            await import_template(given)
            _, template = load_template(place)
            if place.name not in FOUND:
                FOUND[place.name] = await onboarding.generate_uplinks(api, workers, model, seed=1)
            uplinks = FOUND[place.name]
            (sensor,) = onboarding.create_sensors(kind, {model: uplinks}, 1, seed=1)
            sensor.turn = -1
            reader = UplinkDecoder(workers, template.codec, template.document)
            tried.append(Tried(template, reader, sensor, ""))
    async with onboarding.connect_management(first_user(platform)) as api:
        await onboarding.register_sensors(api, kind, [one.sensor for one in tried])
    wanted = {"page_size": 200, "page_number": 1}
    found = (await console.data("POST", "/device/search", wanted))["content"]
    ids = {one["identifier"]: one["id"] for one in found}
    return [one._replace(device=ids[one.sensor.eui]) for one in tried]


@asynccontextmanager
async def network_of(
    platform: Platform, kind: str, broker: ServerBroker, tried: Sequence[Tried]
) -> AsyncIterator[tuple[SimulatedNetwork, Any]]:
    """Simulate a network of the sensors; connect the integration to its broker."""
    settings = broker.settings
    place = Broker(settings["broker"], settings["username"], settings["ca"], "")
    async with onboarding.connect_management(first_user(platform)) as api:
        await onboarding.configure_broker(api, kind, place, PASSWORD)
        await onboarding.wait_connected(api, kind)
        network = SimulatedNetwork(
            create_server_format(kind, place), [one.sensor for one in tried], 1.0, 0.0
        )
        try:
            async with connect_broker(place, PASSWORD) as client:
                await client.subscribe(network.downlinks, qos=1)
                async with run_in_background(network.receive_downlinks(client)):
                    yield network, client
        finally:
            await onboarding.configure_broker(api, kind, Broker("", "", "", ""), "")


async def send_uplink(network: SimulatedNetwork, client: Any, sensor: Sensor, at: datetime) -> None:
    """Let a sensor send an uplink."""
    for message in network.build_uplink_messages(sensor, at):
        await client.publish(message.topic, message.payload, qos=1)


async def report(
    console: Console,
    network: SimulatedNetwork,
    client: Any,
    tried: Sequence[Tried],
    faults: list[str],
) -> None:
    """Let each sensor report, and compare the stored values with its decoder's output."""
    begin = datetime.now(UTC) - timedelta(minutes=5)
    for turn, one in itertools.product(range(UPLINKS), tried):
        await send_uplink(network, client, one.sensor, begin + timedelta(seconds=turn))
    for one in tried:

        async def stored(device: str = one.device) -> Any:
            path = f"/device/{device}/frames/search"
            found = await console.data("POST", path, {"page_size": 20})
            return found["content"] if len(found["content"]) >= UPLINKS else None

        frames = await until(stored)
        for frame, uplink in zip(reversed(frames), one.sensor.uplinks, strict=False):
            assert (frame["port"], frame["hex"]) == (uplink.port, uplink.content.hex())
            (judged,) = await one.reader.decode([uplink], frame["ts"])
            if frame.get("values") != msgspec.json.decode(msgspec.json.encode(judged.properties)):
                faults.append(f"{one.sensor.model} {frame} is not {judged}")


async def write(
    console: Console,
    workers: CodecWorkers,
    kind: str,
    network: SimulatedNetwork,
    client: Any,
    tried: Sequence[Tried],
    faults: list[str],
) -> None:
    """Write a value of each product; check the bytes and the acknowledgement."""
    commanded: list[Tried] = []
    for one in tried:
        found = await first_writing(workers, one)
        if (found is None) != (one.sensor.model.rpartition("-")[0].lower() in WITHOUT_DOWNLINKS):
            faults.append(f"{one.sensor.model}: {found} can be written")
        if found is None:
            continue
        values, wanted = found
        exchange = dict(leaves(f"{kind}.device.{one.sensor.eui}", values))
        await console.data("POST", "/entity/property/update", {"exchange": exchange})

        async def queued(sensor: Sensor = one.sensor) -> Any:
            return list(sensor.queue)

        (downlink,) = await until(queued)
        if downlink.uplink != Uplink(wanted.port, wanted.content):
            faults.append(f"{one.sensor.model}: {values} went as {downlink}, not {wanted}")
        for _ in range(2):
            await send_uplink(network, client, one.sensor, datetime.now(UTC))
        commanded.append(one)
    for one in commanded:

        async def done(device: str = one.device) -> Any:
            path = f"/device/{device}/commands/search"
            (found,) = (await console.data("POST", path, {"page_size": 1}))["content"]
            return found if found["status"] in {"SUCCESS", "FAILED", "TIMEOUT"} else None

        ended = await until(done)
        if ended["status"] != "SUCCESS":
            faults.append(f"{one.sensor.model}: {ended}")


async def first_writing(
    workers: CodecWorkers, one: Tried
) -> tuple[dict[str, Any], EncodedDownlink] | None:
    """Return the first writable property with a short encoding, or None."""
    for values in plausible_writings(one.template.document, Random(1)):
        port = one.sensor.uplinks[0].port
        call = CodecCall("encode", values, port, now_ms())
        (outcome,) = await workers.run("test", one.template.codec, [call])
        try:
            wanted = parse_encoder_result(one.template.codec.encoder, outcome.result(), port)
        except CodecFailed:
            continue
        if 0 < len(wanted.content) <= MAX_DOWNLINK_BYTES:
            return values, wanted
    return None


def leaves(above: str, values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values by the keys of their entities."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from leaves(f"{above}.{key}", value)
        else:
            yield f"{above}.{key}", value


def plausible_writings(document: TslDocument, rng: Random) -> list[dict[str, Any]]:
    """Return values of each writable property, one at a time."""
    writable = {one.id for one in document.properties if "W" in one.access_mode}
    draws = [plausible_properties(document, rng) for _ in range(DRAWS)]
    return [{key: value} for draw in draws for key, value in draw.items() if key in writable]
