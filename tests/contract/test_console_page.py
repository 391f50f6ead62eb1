"""The console in a real browser: somebody signs in and sees a device live."""

import asyncio
import json
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.contract.client import MODEL, Api
from tests.contract.conftest import Thing
from tests.contract.console import PASSWORD, Console, console_accepted, new_email, new_name
from tests.e2e.platform import Platform
from tests.e2e.waiting import until
from tests.integration.management.networks.conftest import ServerBroker, running_broker
from tests.node import node
from tests.templates import library, packed, small
from tests.unit.management.networks.samples import (
    APPLICATION,
    chirpstack,
    device_of,
    heard_now,
)

pytestmark = pytest.mark.xdist_group("contract")


DOCUMENT = Path(__file__).parents[2] / "console/openapi.json"


async def test_it_is_generated_from_the_document_that_is_served(platform: Platform) -> None:
    """`curl …/openapi/management.json | python -m json.tool --indent 1 --no-ensure-ascii`."""
    async with httpx.AsyncClient(base_url=platform.base_url) as http:
        answer = await http.get("/openapi/management.json")
    assert json.loads(DOCUMENT.read_bytes()) == answer.json()


async def test_somebody_begins_with_the_link_and_sees_a_device_live(
    platform: Platform, admin: Console, api: Api, warming: Thing
) -> None:
    """The link works once; a refusal is told; the session outlives a reload and not a sign-out."""
    email = new_email()
    await admin.done(
        "POST", "/user/roles/1/associate-user", {"user_ids": [await admin.add_user(email)]}
    )
    given = {
        "baseUrl": platform.base_url,
        "email": email,
        "first": PASSWORD,
        "password": f"{PASSWORD}2",
        "device": {
            "name": (await api.done("GET", f"/devices/{warming.id}"))["name"],
            "property": "temperature",
        },
    }
    text = await asyncio.to_thread(node, "console/first-sign-in.mjs", json.dumps(given))
    found: dict[str, Any] = json.loads(text)
    assert found.pop("before") != found.pop("after")
    assert found == {
        "used": "This link has already been used to set a password. Sign in with that password.",
        "refusal": "The email address or password is wrong. "
        "If you forgot your password, ask a super-admin to reset it.",
        "problems": [],
    }


async def journey(which: str, platform: Platform, console: Console, **more: Any) -> dict[str, Any]:
    """What a journey found on which somebody who can sign in was sent."""
    given = {"baseUrl": platform.base_url, "email": console.email, "password": console.password}
    text = await asyncio.to_thread(node, f"console/{which}.mjs", json.dumps(given | more))
    return dict(json.loads(text))


async def test_a_device_is_added_reports_is_refused_and_is_set(
    platform: Platform, admin: Console, api: Api, thing: Thing
) -> None:
    """With the command that the page gives; it explains a refusal, and tells a confirmation.

    The program that it offers reads what the device reported, once an application was given it, be
    it a new one or one that there was. The first report is in sight and covers nothing.
    A value is called otherwise and found by its name. Of another device it says why it is not
    let in.
    """
    host, port = platform.mqtt_door()
    answer = await api.http.post(f"/ingest/v1/{thing.sn}/report", json={}, auth=(thing.sn, "x"))
    assert answer.status_code == 401
    more = {"name": new_name(), "product": MODEL, "python": sys.executable, "stranger": thing.id}
    found = await journey("device", platform, admin, **more, host=host, port=port)
    for read in (found.pop("read"), found.pop("again")):
        assert read.startswith(f"{more['name']} [")
        assert "'temperature': " in read
    user, _, server, door = found.pop("login")
    assert (user, server, door) == (
        f"SN (user name) {thing.sn}", "MQTT server 127.0.0.1", f"MQTT port {port}",
    )  # fmt: skip
    assert found == {
        "why": "properties.temperature must be at most 70 received 999",
        "fault": "must be at least 1",
        "commands": 1,
        "current": True,
        "seen": {"inSight": True, "beside": True},
        "problems": [],
    }


CODEC = """function decodeUplink({bytes: b}) { console.log(b); \
return {data: {temperature: b[0]}, warnings: ["low", "low"]} }
function encodeDownlink(input) { return {bytes: [255, input.data.temperature], fPort: 2} }"""


@pytest.mark.slow
async def test_a_product_is_described(platform: Platform, admin: Console) -> None:
    """A fault is told where it is; two versions are compared; a codec is tried as it is written.

    Of a library with a template that has a fault, one that has none becomes a product.
    """
    model, template = f"J{uuid4().hex[:10].upper()}", f"j{uuid4().hex[:10]}"
    zips = {"library": library(**{template: small(template), "odd": {}}), "odd": packed({"a": ""})}
    given = {name: b64encode(content).decode() for name, content in zips.items()}
    found = await journey(
        "products", platform, admin, model=model, codec=CODEC, template=template, **given
    )
    source = await admin.ask("POST", "/blueprint-library-setting", {"source_type": "DEFAULT"})
    console_accepted(source, data=False)
    assert found.pop("broken").startswith("script SyntaxError")
    assert found == {
        "refused": "has no device-template.yaml",
        "wrong": "odd/device-template.yaml does not exist",
        "made": "Imported: 1, failed: 0",
        "encoded": "ff07",
        "fault": "tsl.properties[0].dataSpec.validator.min exceeds max",
        "difference": "added",
        "problems": [],
    }


LORA = "J24LORA"
LORA_CODEC = "function decodeUplink({bytes}) { return {data: {temperature: bytes[0] / 10}} }"
LORA_TSL = {
    "version": "v1.0",
    "properties": [
        {
            "id": "temperature",
            "name": "Temperature",
            "accessMode": "R",
            "dataSpec": {"dataType": "DOUBLE", "unitName": "°C"},
        }
    ],
    "events": [],
    "services": [],
}


@pytest.mark.slow
async def test_a_sensor_is_added_by_its_label_and_its_codec_is_corrected(
    platform: Platform, admin: Console, api: Api, tmp_path: Path
) -> None:
    """The page shows frames next to their values, and a preview of a changed codec."""
    eui, more = (uuid4().hex[:16].upper() for _ in range(2))
    product = {"name": "Journey's sensor", "snPrefixes": [], "tsl": LORA_TSL}
    await api.done("PUT", f"/products/{LORA}", product)
    await api.done("PUT", f"/products/{LORA}/codec", {"script": LORA_CODEC})
    with running_broker(tmp_path) as broker:
        await set_chirpstack(admin, broker.settings)
        sending = asyncio.ensure_future(send_frames(broker, admin, eui))
        found = await journey("lorawan", platform, admin, model=LORA, eui=eui, more=more)
        await sending
    await set_chirpstack(admin, {"broker": ""})
    assert found == {
        "fault": "The checksum does not match. Scan the code again, or enter the DevEUI.",
        "line": "Line 2: “x” is not a valid DevEUI. Enter 16 hex digits.",
        "heard": "-36 dBm · 10.5 dB · SF11BW125",
        "missing": "2",
        "pointers": 0,
        "changes": "temperature21.5temperature-18.5",
        "problems": [],
    }


async def set_chirpstack(admin: Console, settings: dict[str, Any]) -> None:
    """Set properties of the integration."""
    exchange = {f"chirpstack.integration.{key}": value for key, value in settings.items()}
    answer = await admin.ask("POST", "/entity/property/update", {"exchange": exchange})
    console_accepted(answer, data=False)


async def send_frames(broker: ServerBroker, admin: Console, eui: str) -> None:
    """Its state and two frames, as soon as it is there; two between them never arrive."""

    async def there() -> bool:
        return bool((await admin.done("POST", "/device/search", {"identifier": eui}))["content"])

    await until(there, seconds=60)
    async with broker.client() as server:
        topic = f"application/{APPLICATION}/device/{eui.lower()}/event"
        state = {"margin": 10, "batteryLevel": 80.0, "deviceInfo": device_of(eui)}
        await server.publish(f"{topic}/status", chirpstack(**state), qos=1)
        for counter, data in ((7, b"\xd7"), (10, b"\xd8")):
            await server.publish(f"{topic}/up", heard_now(eui, counter, data), qos=1)
