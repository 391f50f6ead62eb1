"""A page of another origin in a real browser: signs in, reads and commands, if it may."""

import json
from typing import Any

import pytest

from tests.contract.client import Api
from tests.contract.conftest import Thing
from tests.e2e.platform import ALLOWED_ORIGIN, Platform
from tests.node import node

pytestmark = pytest.mark.xdist_group("contract")

BLOCKED = "TypeError"
"""What `fetch` throws when the browser keeps an answer from a page."""


def visit(origin: str, platform: Platform, api: Api, thing: Thing) -> dict[str, Any]:
    """What a page of `origin` comes to."""
    given = {
        "baseUrl": platform.base_url,
        "clientId": api.client_id,
        "clientSecret": api.client_secret,
        "token": api.token,
        "sn": thing.sn,
        "deviceId": thing.id,
    }
    return dict(json.loads(node("browser.mjs", origin, json.dumps(given))))


async def test_a_page_that_may_call(platform: Platform, api: Api, thing: Thing) -> None:
    """Everything that it needs gets through: preflights, answers, refusals and `Location`."""
    found = visit(ALLOWED_ORIGIN, platform, api, thing)
    task = found.pop("task")
    assert found == {
        "signIn": 200,
        "read": thing.sn,
        "command": 200,
        "refusal": "authentication_failed",
    }
    assert (await api.done("GET", task))["deviceId"] == thing.id


async def test_a_page_that_may_not(platform: Platform, api: Api, thing: Thing) -> None:
    """It learns nothing, also with a token, and its command is not made."""
    found = visit("http://evil.test", platform, api, thing)
    assert found == dict.fromkeys(("signIn", "read", "command", "refusal"), BLOCKED) | {
        "task": None
    }
    assert await api.commands(thing.sn, thing.key, wait=0) == []
