"""The console in a real browser: somebody signs in and sees a device live."""

import asyncio
import itertools
import json
from typing import Any

import pytest

from tests.contract.client import Api
from tests.contract.conftest import Thing
from tests.contract.node import node
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("contract")


async def report_on(api: Api, thing: Thing) -> None:
    """Report another temperature as soon as the one before is stored, for ever."""
    for number in itertools.count():
        await api.report(thing.sn, thing.key, {"properties": {"temperature": 20 + number % 10}})


async def test_somebody_signs_in_and_sees_a_device_live(
    platform: Platform, api: Api, thing: Thing
) -> None:
    """What it is refused is told; the session outlives a reload and not a sign-out."""
    name = (await api.done("GET", f"/devices/{thing.id}"))["name"]
    given = {
        "baseUrl": platform.base_url,
        "email": platform.ready.user.email,
        "password": platform.ready.user.password,
        "device": {"name": name, "property": "temperature"},
    }
    reporting = asyncio.ensure_future(report_on(api, thing))
    try:
        found: dict[str, Any] = json.loads(
            await asyncio.to_thread(node, "console.mjs", json.dumps(given))
        )
    finally:
        reporting.cancel()
    assert found.pop("first") != found.pop("second")
    assert found == {"refusal": "The address or the password is wrong.", "problems": []}
