"""Reports, over each protocol: history, latest values and events."""

import time

import pytest

from tests.e2e.devices import Device
from tests.e2e.listening import Listener

pytestmark = pytest.mark.xdist_group("platform")


def now() -> int:
    return int(time.time() * 1000)


async def test_an_mqtt_report_is_seen_everywhere(device: Device, events: Listener):
    """A report of QoS 1 is once in history, in the latest values and on NATS."""
    async with device.mqtt() as mqtt:
        await mqtt.report({"temperature": 21.5, "interval": 7})
    record = await device.stored({"temperature": 21.5, "interval": 7})
    event = await events.wait(f"event.default.device.{device.id}.reported")
    assert record["ts"] == event["ts"] == pytest.approx(now(), abs=20_000)
    assert event["properties"] == record["properties"]
    assert (event["device"]["deviceId"], event["device"]["sn"]) == (device.id, device.sn)
    assert (await device.settings())["interval"] == 7
    assert len(await device.history()) == 1


async def test_an_mqtt_report_of_qos_0_is_stored_once(device: Device):
    """QoS 0 reports are stored like others, each once."""
    async with device.mqtt() as mqtt:
        await mqtt.report({"counter": 1}, qos=0)
        await mqtt.report({"counter": 2}, qos=1)
    await device.stored({"counter": 1})
    await device.stored({"counter": 2})
    assert len(await device.history()) == 2


async def test_a_report_keeps_the_devices_own_time(device: Device):
    """`ts` of a report is the time of the record; an older report does not become the latest."""
    moment = now() - 3_600_000
    async with device.mqtt() as mqtt:
        await mqtt.report({"interval": 5}, ts=moment)
        await mqtt.report({"interval": 4}, ts=moment - 1)
    assert (await device.stored({"interval": 4}))["ts"] == moment - 1
    assert (await device.stored({"interval": 5}))["ts"] == moment
    assert (await device.settings())["interval"] == 5


async def test_a_nats_report_is_seen_everywhere(device: Device, events: Listener):
    """A device on plain NATS gets JetStream's acknowledgement; its report is stored."""
    async with device.nats() as client:
        answer = await client.jetstream().publish(
            f"thing.{device.sn}.up.report", b'{"properties":{"counter":3,"led":true}}'
        )
    assert answer.stream == "UPLINK"
    await device.stored({"counter": 3, "led": True})
    event = await events.wait(f"event.default.device.{device.id}.reported")
    assert event["properties"] == {"counter": 3, "led": True}


async def test_a_single_http_report_is_accepted_and_stored(device: Device, events: Listener):
    """One report over HTTP gets 202 and is soon in history."""
    status, body = await device.http("POST", "report", {"properties": {"counter": 4}})
    assert (status, body["data"]) == (202, {"accepted": 1, "refused": []})
    await device.stored({"counter": 4})
    await events.wait(f"event.default.device.{device.id}.reported")


async def test_an_array_of_http_reports_is_answered_entry_by_entry(device: Device):
    """The valid reports are accepted; the answer names each refused one."""
    reports = [{"properties": {"counter": 1}}, {"properties": {"nope": 1}}, {"x": 1}, 5]
    status, body = await device.http("POST", "report", reports, wait="stored")
    assert (status, body["data"]["accepted"]) == (202, 1)
    assert [entry["index"] for entry in body["data"]["refused"]] == [1, 2, 3]
    assert [one["properties"] for one in await device.history()] == [{"counter": 1}]


async def test_a_thousand_http_reports_are_stored_and_one_more_is_refused(device: Device):
    """An array may hold 1000 reports, also of the same millisecond."""
    reports = [{"ts": now(), "properties": {"counter": number}} for number in range(1000)]
    status, body = await device.http("POST", "report", reports, wait="stored")
    assert (status, body["data"]["accepted"]) == (202, 1000)
    counters = [one["properties"]["counter"] for one in await device.history()]
    assert sorted(counters) == list(range(1000))
    status, body = await device.http("POST", "report", [*reports, reports[0]])
    assert (status, body["status"]) == (400, "Failed")


async def test_wait_stored_answers_when_history_has_it(device: Device):
    """After `?wait=stored` the report can be read at once."""
    status, _ = await device.http("POST", "report", {"properties": {"counter": 5}}, wait="stored")
    assert status == 202
    assert [one["properties"] for one in await device.history()] == [{"counter": 5}]


@pytest.mark.parametrize(
    "body",
    [
        b"{not json",
        b"",
        b'{"properties":{"temperature":"warm"}}',
        b'{"properties":{"nope":1}}',
        b'{"properties":{}}',
        b'{"properties":[1]}',
        b"null",
        b"[]",
        b'{"ts":99999999999999,"properties":{"counter":1}}',
        b'{"ts":1,"properties":{"counter":1}}',
        b'{"properties":{"counter":1e400}}',
    ],
)
async def test_a_bad_http_report_is_a_client_error(device: Device, body: bytes):
    """An invalid report gets 400 in the envelope, and nothing is stored."""
    status, answer = await device.http("POST", "report", body)
    assert (status, answer["status"]) == (400, "Failed")
    assert answer["errCode"]
    assert answer["errMsg"]
    assert await device.history() == []


async def test_http_and_mqtt_events_are_published_on_nats(device: Device, events: Listener):
    """An event of the TSL reaches applications with its outputs, from either protocol."""
    status, _ = await device.http("POST", "event", {"eventId": "alarm", "outputs": {"level": 3}})
    assert status == 202
    subject = f"event.default.device.{device.id}.event"
    event = await events.wait(subject)
    assert (event["tslId"], event["eventType"], event["outputs"]) == ("alarm", "WARN", {"level": 3})
    async with device.mqtt() as mqtt:
        await mqtt.send("event", {"eventId": "alarm", "outputs": {"level": 4}})
        await events.wait(subject, lambda body: body["outputs"] == {"level": 4})


async def test_without_data_storage_only_the_latest_values_remain(application, device: Device):
    """With storage off history is empty, while latest values and events go on."""
    change = {"deviceId": device.id, "name": device.sn, "dataStorage": False}
    await application.data("PUT", "/devices", change)
    status, _ = await device.http("POST", "report", {"properties": {"interval": 9}}, wait="stored")
    assert status == 202
    assert (await device.settings())["interval"] == 9
    assert await device.history() == []
    page = await application.data("GET", f"/devices/{device.id}/properties/history")
    assert (page["list"], page.get("nextPageKey")) == ([], None)


async def test_a_device_that_is_removed_and_added_again_keeps_its_history(application, device):
    """Removing a device from the application keeps its id and history."""
    await device.http("POST", "report", {"properties": {"counter": 6}}, wait="stored")
    await application.data("PUT", f"/devices/remove/{device.id}")
    status, _ = await application.request("GET", f"/devices/{device.id}")
    assert status == 404
    again = await application.data("POST", "/devices", {"snDevEUI": device.sn, "name": "again"})
    assert again["deviceId"] == device.id
    assert [one["properties"] for one in await device.history()] == [{"counter": 6}]
