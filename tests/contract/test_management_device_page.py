"""Management API: what a device's page shows besides values, products, and the ledger."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from paho.mqtt import MQTTException, publish
from paho.mqtt import client as mqtt

from tests.contract.client import MODEL, PRODUCT, Api
from tests.contract.conftest import Thing
from tests.contract.console import Console, console_accepted, console_refused, new_name
from tests.e2e.platform import Platform

Ask = Callable[..., Awaitable[dict[str, Any]]]

pytestmark = pytest.mark.xdist_group("contract")


async def say(platform: Platform, thing: Thing, *messages: str) -> None:
    """Publish reports over MQTT, where a device is not told what is refused."""
    host, port = platform.mqtt_door()
    topic = f"thing/{thing.sn}/up/report"
    sent: list[Any] = [(topic, message, 1, False) for message in messages]
    login: Any = {"username": thing.sn, "password": thing.key}
    await asyncio.to_thread(publish.multiple, sent, host, port, thing.sn, auth=login)


async def until(ask: Ask, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first answer of which `true` holds; it is there within half a minute."""
    async with asyncio.timeout(30):
        while not true(found := await ask()):
            await asyncio.sleep(0.1)
    return found


@pytest.fixture
async def refused(platform: Platform, admin: Console, thing: Thing) -> Ask:
    """Asks for the refusals of a device that has had three, each of another sort."""

    async def ask(**more: Any) -> dict[str, Any]:
        found = await admin.done("POST", f"/device/{thing.id}/refusals/search", more)
        return dict(found)

    good = {"properties": {"temperature": 20, "battery": "much"}}
    reports = ['{"properties": {"temperature": 999}}', "{no json", json.dumps(good)]
    for number, report in enumerate(reports, 1):
        await say(platform, thing, report)
        await until(ask, lambda found, due=number: len(found["content"]) == due)
    return ask


async def test_refusals_of_a_device(refused: Ask) -> None:
    """The newest first, with value, reason and message.

    A message that is not JSON is masked, because a property of this model is write-only.
    """
    part, garbled, whole = (await refused())["content"]
    (fault,) = part["faults"]
    assert (part["whole"], part.get("payload")) == (False, None)
    assert (fault["path"], fault["value"]) == ("properties.battery", "much")
    assert (garbled["whole"], garbled["payload"], garbled["channel"]) == (
        True,
        "******",
        "report",
    )
    assert whole["faults"] == [
        {"path": "properties.temperature", "reason": "must be at most 70", "value": 999}
    ]
    assert json.loads(whole["payload"]) == {"properties": {"temperature": 999}}


async def test_a_report_over_http_that_is_refused_is_listed(
    admin: Console, api: Api, thing: Thing
) -> None:
    """The device is answered, and people see the value and its bound; what is no JSON is masked."""
    path, login = f"/ingest/v1/{thing.sn}/report", (thing.sn, thing.key)
    for content in (b'{"properties": {"temperature": 999}}', b"{no json"):
        answer = await api.http.post(path, content=content, auth=login)
        assert answer.status_code == 400
    found = await admin.done("POST", f"/device/{thing.id}/refusals/search", {})
    garbled, whole = found["content"]
    assert (garbled["payload"], garbled["channel"], garbled["whole"]) == (
        "******", "report", True,
    )  # fmt: skip
    assert [fault["value"] for fault in whole["faults"]] == [999]


async def test_a_log_in_with_a_wrong_key_is_seen(
    platform: Platform, admin: Console, api: Api, thing: Thing
) -> None:
    """When, and over what: the device itself is told no more than a stranger."""
    path = f"/device/{thing.id}/refused-login"

    async def ask() -> dict[str, Any]:
        return dict(await admin.done("GET", path))

    assert await ask() == {}
    answer = await api.http.post(f"/ingest/v1/{thing.sn}/report", json={}, auth=(thing.sn, "x"))
    assert answer.status_code == 401
    over_http = await until(ask, lambda found: found.get("over") == "HTTP")
    host, port = platform.mqtt_door()
    wrong: Any = {"username": thing.sn, "password": "x"}
    with pytest.raises(MQTTException):
        await asyncio.to_thread(publish.single, "t", "", 1, False, host, port, thing.sn, auth=wrong)
    over_mqtt = await until(ask, lambda found: found.get("over") == "MQTT")
    assert over_mqtt["at"] >= over_http["at"]
    assert over_mqtt["wrong"] == "KEY"


async def test_refusals_come_in_pages_and_by_reason(refused: Ask) -> None:
    """Pages follow each other without a gap or a copy, out of both streams."""
    everything = [entry["id"] for entry in (await refused())["content"]]
    pages, key = [], None
    while True:
        page = await refused(page_size=1, next_key=key)
        pages += [entry["id"] for entry in page["content"]]
        key = page.get("next_key")
        if key is None:
            break
    assert pages == everything
    found = await refused(reason="at most 70")
    assert [entry["id"] for entry in found["content"]] == everything[2:]


async def test_only_users_who_see_the_device_see_its_rejected_messages(
    admin: Console, other_admin: Console, thing: Thing
) -> None:
    """Another tenant gets 404; an invalid page key gets 400."""
    path = f"/device/{thing.id}/refusals/search"
    console_refused(await other_admin.ask("POST", path, {}), 404, "data_no_found", "device_id")
    console_refused(
        await admin.ask("POST", path, {"next_key": "x"}), 400, "parameter_validation_failed"
    )


async def test_a_property_is_set_and_confirmed(admin: Console, api: Api, thing: Thing) -> None:
    """A fault names its field; a good value is a command, which ends as the device says."""
    path = f"/device/{thing.id}/properties"
    bad = {"properties": {"reporting_interval": {"time": 0, "unit": "0"}, "led": "on"}}
    answer = console_refused(await admin.ask("POST", path, bad), 400, "parameter_validation_failed")
    assert {entry["field"] for entry in answer["data"]} >= {
        "properties.reporting_interval.time",
        "properties.led",
    }
    made = await admin.done("POST", path, {"properties": {"led": True}})
    assert (made["kind"], made["payload"]) == ("SET_PROPERTIES", {"properties": {"led": True}})
    (command,) = await api.commands(thing.sn, thing.key)
    await api.reply(thing.sn, thing.key, {"commandId": command["commandId"], "status": "SUCCESS"})
    page = await admin.done("POST", f"/device/{thing.id}/commands/search", {"page_size": 5})
    (ended,) = page["content"]
    assert (page["total"], ended["id"], ended["status"]) == (1, made["id"], "SUCCESS")
    empty = {"status": ["FAILED"], "page_size": 5}
    assert (await admin.done("POST", f"/device/{thing.id}/commands/search", empty))["total"] == 0


async def test_a_service_is_called(admin: Console, thing: Thing) -> None:
    """Inputs are checked by the TSL that the device follows, which tells its services, too."""
    path = f"/device/{thing.id}/services/call"
    tsl = await admin.done("GET", f"/device/{thing.id}/tsl")
    assert "measure" in [service["id"] for service in tsl["services"]]
    answer = await admin.ask("POST", path, {"service_id": "measure", "inputs": {"times": "x"}})
    console_refused(answer, 400, "parameter_validation_failed", "inputs.times")
    called = await admin.done("POST", path, {"service_id": "reboot"})
    assert (called["kind"], called["payload"]["serviceId"]) == ("CALL_SERVICE", "reboot")


async def test_comings_and_goings(platform: Platform, admin: Console, thing: Thing) -> None:
    """A device that connects has come, and one that leaves has gone; the newest first."""

    async def ask() -> dict[str, Any]:
        return dict(await admin.done("POST", f"/device/{thing.id}/connections/search", {}))

    device = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=thing.sn)
    device.username_pw_set(thing.sn, thing.key)
    await asyncio.to_thread(device.connect, *platform.mqtt_door())
    device.loop_start()
    try:
        come = await until(ask, lambda found: bool(found["content"]))
        assert [entry["status"] for entry in come["content"]] == ["ONLINE"]
    finally:
        device.disconnect()
        device.loop_stop()
    gone = await until(ask, lambda found: len(found["content"]) == 2)
    assert [entry["status"] for entry in gone["content"]] == ["OFFLINE", "ONLINE"]


async def test_a_product_on_the_console(admin: Console, other_admin: Console) -> None:
    """Checked, saved, found, changed under another version, compared and deleted."""
    model = new_name("P").replace(" ", "-")
    body = {"name": model, "tsl": PRODUCT["tsl"], "sn_prefixes": []}
    wrong = body | {"sn_prefixes": ["no good"], "location_property": "led"}
    checked = await admin.done("POST", f"/product/{model}/check", wrong)
    assert [fault["field"] for fault in checked["faults"]] == [
        "sn_prefixes[0]",
        "location_property",
    ]
    answer = await admin.ask("PUT", f"/product/{model}", wrong)
    console_refused(answer, 400, "parameter_validation_failed", "sn_prefixes[0]")
    assert (await admin.done("POST", f"/product/{model}/check", body)) == {"faults": []}
    first = await admin.done("PUT", f"/product/{model}", body)
    assert (first["versions"], first["built_in"]) == ([PRODUCT["tsl"]["version"]], False)
    more = body | {"tsl": PRODUCT["tsl"] | {"version": "v9.9", "services": []}}
    second = await admin.done("PUT", f"/product/{model}", more)
    assert second["current_version"] == "v9.9"
    old = await admin.done("GET", f"/product/{model}/versions/{first['current_version']}")
    assert {service["id"] for service in old["services"]} == {"reboot", "measure"}
    assert not (await admin.done("GET", f"/product/{model}"))["tsl"].get("services")
    console_refused(await other_admin.ask("GET", f"/product/{model}"), 404, "product_not_found")
    unknown = await admin.ask("GET", f"/product/{model}/versions/v0")
    console_refused(unknown, 404, "data_no_found", "version")
    gone = await admin.ask("DELETE", f"/product/{model}")
    console_accepted(gone, data=False)
    page = await admin.done("POST", "/product/search", {"page_size": 1000})
    assert MODEL in [entry["model"] for entry in page["content"]]
    assert model not in [entry["model"] for entry in page["content"]]


async def test_the_ledger_counts_every_message(
    admin: Console, other_admin: Console, api: Api
) -> None:
    """Accepted messages are stored, rejected or waiting. Other tenants see no counts."""
    ledger = await admin.done("GET", "/system/ledger")
    assert ledger["accepted"] == ledger["stored"] + ledger["rejected"] + ledger["waiting"]
    assert "data" not in (await other_admin.ask("GET", "/system/ledger")).json()
