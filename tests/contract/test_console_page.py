"""The console in a real browser: somebody signs in and sees a device live."""

import asyncio
import itertools
import json
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.contract.client import MODEL, Api
from tests.contract.conftest import Thing
from tests.contract.console import PASSWORD, Console, new_email, new_name
from tests.contract.node import node
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("contract")


DOCUMENT = Path(__file__).parents[2] / "console/openapi.json"


async def test_it_is_generated_from_the_document_that_is_served(platform: Platform) -> None:
    """`curl …/openapi/management.json | python -m json.tool --indent 1 --no-ensure-ascii`."""
    async with httpx.AsyncClient(base_url=platform.base_url) as http:
        answer = await http.get("/openapi/management.json")
    assert json.loads(DOCUMENT.read_bytes()) == answer.json()


async def report_on(api: Api, thing: Thing) -> None:
    """Report another temperature as soon as the one before is stored, for ever."""
    for number in itertools.count():
        await api.report(thing.sn, thing.key, {"properties": {"temperature": 20 + number % 10}})


async def test_somebody_begins_with_the_link_and_sees_a_device_live(
    platform: Platform, admin: Console, api: Api, thing: Thing
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
            "name": (await api.done("GET", f"/devices/{thing.id}"))["name"],
            "property": "temperature",
        },
    }
    reporting = asyncio.ensure_future(report_on(api, thing))
    try:
        text = await asyncio.to_thread(node, "console/first-sign-in.mjs", json.dumps(given))
    finally:
        reporting.cancel()
    found: dict[str, Any] = json.loads(text)
    assert found.pop("before") != found.pop("after")
    assert found == {
        "used": "This link has been used: a password was chosen.",
        "refusal": "The address or the password is wrong.",
        "problems": [],
    }


async def journey(which: str, platform: Platform, console: Console, **more: Any) -> dict[str, Any]:
    """What a journey found on which somebody who can sign in was sent."""
    given = {"baseUrl": platform.base_url, "email": console.email, "password": console.password}
    text = await asyncio.to_thread(node, f"console/{which}.mjs", json.dumps(given | more))
    return dict(json.loads(text))


async def test_a_device_is_added_reports_is_refused_and_is_set(
    platform: Platform, admin: Console, api: Api
) -> None:
    """With the command that the page gives; it explains a refusal, and tells a confirmation."""
    host, port = platform.mqtt_door()
    more = {"name": new_name(), "product": MODEL, "python": sys.executable}
    found = await journey("device", platform, admin, **more, host=host, port=port)
    assert found == {
        "why": "properties.temperature must be at most 70 it was 999",
        "fault": "must be at least 1",
        "problems": [],
    }


CODEC = """function decodeUplink(input) { return {data: {temperature: input.bytes[0]}} }
function encodeDownlink(input) { return {bytes: [255, input.data.temperature], fPort: 2} }"""


async def test_a_product_is_described(platform: Platform, admin: Console) -> None:
    """A fault is told where it is; two versions are compared; a codec is tried as it is written."""
    model = f"J{uuid4().hex[:10].upper()}"
    found = await journey("products", platform, admin, model=model, codec=CODEC)
    assert found.pop("broken").startswith("script SyntaxError")
    assert found == {
        "encoded": "ff07",
        "fault": "tsl.properties[0].dataSpec.validator.min exceeds max",
        "difference": "added",
        "problems": [],
    }
