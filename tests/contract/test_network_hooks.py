"""Webhooks of network servers, through the gateway."""

import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tests.contract.client import Api, new_sn
from tests.contract.console import Console, console_accepted, console_refused
from tests.e2e.waiting import until
from tests.unit.management.networks.samples import TTS_UP

pytestmark = pytest.mark.xdist_group("platform")

CODEC = "function Decode(port, bytes) { return {temperature: bytes[0] / 10} }"
TSL = {
    "version": "v1.0",
    "properties": [
        {"id": "temperature", "name": "t", "accessMode": "R", "dataSpec": {"dataType": "DOUBLE"}}
    ],
    "events": [],
    "services": [],
}
MAPPING = {"device": "/dev/eui", "data": "/up/0/bytes", "port": "/up/0/port", "counter": "/n"}
EUI = "0102030405060711"


class Hook:
    """A webhook of an integration, and a device of it."""

    def __init__(self, admin: Console, integration: str, eui: str) -> None:
        self.admin = admin
        self.integration = integration
        self.token = secrets.token_urlsafe(32)
        self.eui = eui

    async def set(self, **settings: str) -> None:
        """Set properties of the integration."""
        exchange = {f"{self.integration}.integration.{k}": v for k, v in settings.items()}
        update = await self.admin.ask("POST", "/entity/property/update", {"exchange": exchange})
        console_accepted(update, data=False)

    async def add(self, model: str) -> None:
        """Add the device."""
        prefix = f"{self.integration}.integration.add_device"
        params = {f"{prefix}.dev_eui": self.eui, f"{prefix}.model": model}
        body = {"name": self.eui, "integration": self.integration, "param_entities": params}
        console_accepted(await self.admin.ask("POST", "/device", body), data=False)

    async def post(self, body: Any, token: str = "") -> Any:
        """Post a body as a network server does: without a login."""
        path = f"/integration/hooks/{token or self.token}"
        return await self.admin.http.post(path, content=msgspec.json.encode(body))

    async def frames(self) -> list[dict[str, Any]]:
        """The frames of the device, the newest first."""
        wanted = {"page_size": 200, "page_number": 1}
        found = (await self.admin.done("POST", "/device/search", wanted))["content"]
        (device,) = [entry["id"] for entry in found if entry["identifier"] == self.eui]
        path = f"/device/{device}/frames/search"
        return list((await self.admin.done("POST", path, {"page_size": 10}))["content"])

    async def shown(self, name: str) -> Any:
        """A property of the integration."""
        told = await self.admin.done("GET", f"/integration/{self.integration}")
        keys = {entity["key"]: entity.get("value") for entity in told["integration_entities"]}
        return keys[f"{self.integration}.integration.{name}"]


@pytest_asyncio.fixture
async def model(api: Api) -> AsyncIterator[str]:
    """A product with a codec, for one test."""
    model = new_sn("H-")
    body = {"name": model, "snPrefixes": [], "tsl": TSL}
    await api.done("PUT", f"/products/{model}", body)
    await api.done("PUT", f"/products/{model}/codec", {"script": CODEC})
    yield model


async def test_json_is_read_by_pointers(admin: Console, model: str) -> None:
    """Told twice it is one frame; what is wrong is refused with its place, and shown."""
    hook = Hook(admin, "webhook", EUI)
    await hook.set(webhook_token=hook.token, encoding="hex", time="/at", **MAPPING)
    await hook.add(model)
    up, at = [{"bytes": "d7", "port": 85}], datetime.now(UTC).isoformat()
    body = {"dev": {"eui": EUI.lower()}, "up": up, "n": 7, "at": at}
    for _ in range(2):
        console_accepted(await hook.post(body), data=False)
    frames = await until(hook.frames)
    assert [(frame["values"], frame["counter"]) for frame in frames] == [({"temperature": 21.5}, 7)]

    wrong = body | {"up": [{"bytes": "xy", "port": 85}]}
    refused = console_refused(await hook.post(wrong), 400, "parameter_validation_failed")
    assert refused["error_message"] == "/up/0/bytes: is not hexadecimal"

    async def told() -> bool:
        shown = str(await hook.shown("last_error"))
        return shown.endswith(f" UTC: webhook: {refused['error_message']}")

    await until(told)
    console_refused(await hook.post(body, "x" * 40), 404, "data_no_found", "token")
    assert (await hook.post("x" * 70_000)).status_code == 413
    old, hook.token = hook.token, secrets.token_urlsafe(32)
    await hook.set(webhook_token=hook.token)
    assert (await hook.post(body, old)).status_code == 404


async def test_a_preset_needs_no_pointers(admin: Console, model: str) -> None:
    """A clock of 1970 and radio that cannot be read cost no uplink; a join is passed over."""
    eui = "0004A30B001C0531"
    hook = Hook(admin, "webhook", eui)
    await hook.set(webhook_token=hook.token, preset="actility")
    await hook.add(model)
    console_accepted(await hook.post({"DevEUI_join": {"DevEUI": eui}}), data=False)
    uplink = {"DevEUI": eui, "FPort": "85", "payload_hex": "d7", "LrrRSSI": "none", "Time": "0"}
    console_accepted(await hook.post({"DevEUI_uplink": uplink}), data=False)
    (frame,) = await until(hook.frames)
    assert frame["values"] == {"temperature": 21.5}

    async def told() -> bool:
        return "/DevEUI_uplink/LrrRSSI must be a number" in str(await hook.shown("last_error"))

    await until(told)
    await hook.set(preset="custom")


async def test_the_things_stack_sends_webhooks(admin: Console, model: str) -> None:
    """The messages are the same as over MQTT."""
    hook = Hook(admin, "tts", "0004A30B001C0530")
    await hook.set(webhook_token=hook.token)
    await hook.add(model)
    up = msgspec.json.decode(TTS_UP)
    del up["uplink_message"]["received_at"], up["received_at"]
    assert (await hook.post(up)).status_code == 200
    (frame,) = await until(hook.frames)
    assert frame["hex"] == "627c"
    assert (await hook.post(up | {"end_device_ids": {}})).status_code == 400


@pytest.mark.parametrize("token", ["short", "a" * 40, "with a blank " * 4])
async def test_a_token_that_could_be_guessed_is_refused(admin: Console, token: str) -> None:
    """It is all that a caller shows."""
    body = {"exchange": {"webhook.integration.webhook_token": token}}
    path, code = "/entity/property/update", "multiple_error"
    answer = await admin.fails(400, code, "POST", path, body)
    assert "webhook_token" in answer["error_message"]
