"""Who may speak, for whom, and for how long."""

import asyncio
import json

import aiomqtt
import nats
import pytest
from nats.errors import Error as NatsError

from tests.e2e.callers import Application
from tests.e2e.devices import Device
from tests.e2e.platform import Platform
from tests.e2e.waiting import until

pytestmark = pytest.mark.xdist_group("platform")


async def test_a_device_cannot_publish_for_another(application, device: Device):
    """The broker drops a report on another's topic; MQTT 3.1.1 cannot refuse it."""
    other = await application.add_device()
    report = json.dumps({"properties": {"counter": 1}})
    async with device.mqtt() as mqtt:
        for topic in (f"thing/{other.sn}/up/report", f"$MQTT/msgs/thing/{other.sn}/up/report"):
            for qos in (0, 1):
                await mqtt.client.publish(topic, report, qos=qos)
        await mqtt.report({"counter": 3})
    await device.stored({"counter": 3})
    await other.http("POST", "report", {"properties": {"counter": 2}}, wait="stored")
    assert [one["properties"] for one in await other.history()] == [{"counter": 2}]


@pytest.mark.parametrize("topic", ["thing/{sn}/down/#", "thing/+/down/command", "#", "event/#"])
async def test_a_device_cannot_receive_for_another(application, device: Device, topic: str):
    """A device may subscribe only to its own commands."""
    other = await application.add_device()
    async with device.mqtt() as mqtt:
        try:
            granted = await mqtt.client.subscribe(topic.format(sn=other.sn), qos=0)
        except aiomqtt.MqttError:
            return
        assert int(str(getattr(granted[0], "value", granted[0]))) == 0x80


async def test_a_nats_device_is_bound_to_its_own_subjects(application, device: Device):
    """Over plain NATS too a device may use only its own subjects."""
    other = await application.add_device()
    async with device.nats() as client:
        with pytest.raises(NatsError):
            await client.jetstream().publish(
                f"thing.{other.sn}.up.report", b'{"properties":{"counter":1}}', timeout=1
            )
        subscription = await client.subscribe(f"thing.{other.sn}.down.>")
        await client.flush()
        body = {"properties": {"led": True}}
        await application.started("PATCH", f"/devices/{other.id}/properties", body)
        async with other.mqtt() as mqtt:
            await mqtt.command()
        assert subscription.pending_msgs == 0
    assert await other.history() == []


async def test_an_http_device_is_bound_to_its_own_path(application, device: Device):
    """The key of a device is not valid for another device's path."""
    other = await application.add_device()
    report = {"properties": {"counter": 1}}
    path = f"/ingest/v1/{other.sn}/report"
    status, body = await device.http("POST", path, report)
    assert (status, body["status"]) == (403, "Failed")
    assert await other.history() == []


async def test_a_wrong_key_opens_nothing(device: Device):
    """MQTT, NATS and HTTP refuse a wrong key."""
    with pytest.raises(aiomqtt.MqttError):
        async with device.mqtt(key="wrong"):
            pass
    status, body = await device.http("POST", "report", {"properties": {"counter": 1}}, key="wrong")
    assert (status, body["errCode"]) == (401, "authentication_failed")
    right, device.key = device.key, "wrong"
    with pytest.raises((NatsError, OSError)):
        async with asyncio.timeout(30), device.nats(reconnect=False):
            pass
    device.key = right
    assert await device.connect_status() == "DISCONNECT"


async def test_new_credentials_end_the_old_connection(device: Device):
    """After a rotation the old connection is closed, the old key dead and the new one good."""
    async with device.mqtt() as mqtt:
        await mqtt.report({"counter": 1})
        old, device.key = device.key, await device.new_key()
        await mqtt.closed()
    with pytest.raises(aiomqtt.MqttError):
        async with device.mqtt(key=old):
            pass
    status, _ = await device.http("POST", "report", {"properties": {"counter": 2}}, key=old)
    assert status == 401
    async with device.mqtt() as mqtt:
        await mqtt.report({"counter": 3})
    await device.stored({"counter": 3})


async def test_new_credentials_end_a_plain_nats_connection(device: Device):
    """A rotation closes connections of every protocol."""
    async with device.nats(reconnect=False) as client:
        device.key = await device.new_key()

        async def is_closed() -> bool:
            return client.is_closed

        await until(is_closed)


async def test_a_deleted_device_is_locked_out(application, device: Device):
    """Deleting a device closes its connection and revokes its key; its id is unknown."""
    async with device.mqtt() as mqtt:
        await mqtt.report({"counter": 1})
        assert await application.data("DELETE", f"/devices/{device.id}") == device.sn
        await mqtt.closed()
    with pytest.raises(aiomqtt.MqttError):
        async with device.mqtt():
            pass
    status, _ = await device.http("POST", "report", {"properties": {"counter": 2}})
    assert status == 401
    status, _ = await application.request("GET", f"/devices/{device.id}")
    assert status == 404


async def test_a_new_secret_ends_old_tokens_at_once(platform: Platform, other_application):
    """The next call with a token of the old secret is 401."""
    await other_application.log_in()
    search = {"pageSize": 1, "pageNumber": 1}
    assert (await other_application.request("POST", "/devices/search", search))[0] == 200
    rotated = platform.command("app", "rotate-secret", str(other_application.id))
    status, body = await other_application.request("POST", "/devices/search", search)
    assert (status, body["errCode"]) == (401, "authentication_failed")
    other_application.client_secret = rotated["clientSecret"]
    await other_application.log_in()
    assert (await other_application.request("POST", "/devices/search", search))[0] == 200


async def test_a_new_secret_ends_a_nats_connection(platform: Platform):
    """The connection of an application that listens to events is closed."""
    made = platform.command("app", "create", "listener", "--events")
    client = await nats.connect(
        f"nats://127.0.0.1:{platform.nats_port}",
        user=made["clientId"],
        password=made["clientSecret"],
        allow_reconnect=False,
    )
    platform.command("app", "rotate-secret", str(made["applicationId"]))

    async def is_closed() -> bool:
        return client.is_closed

    await until(is_closed)
    platform.command("app", "delete", str(made["applicationId"]))


async def test_an_application_without_events_may_not_listen(other_application: Application):
    """The bus refuses an application that was created without `events`."""
    with pytest.raises((NatsError, OSError)):
        await nats.connect(
            f"nats://127.0.0.1:{other_application.platform.nats_port}",
            user=other_application.client_id,
            password=other_application.client_secret,
            allow_reconnect=False,
        )


async def test_applications_do_not_see_each_others_devices(
    other_application: Application, device: Device
):
    """Another application's device is 404 for every operation, and in no search."""
    await other_application.log_in()
    calls = [
        ("GET", f"/devices/{device.id}", None),
        ("GET", f"/devices/{device.id}/thing-specification", None),
        ("GET", f"/devices/{device.id}/properties/history", None),
        ("GET", f"/devices/{device.id}/config", None),
        ("PATCH", f"/devices/{device.id}/properties", {"properties": {"led": True}}),
        (
            "POST",
            f"/devices/{device.id}/services/call",
            {"serviceId": "measure", "inputs": {"times": 1}},
        ),
        ("POST", f"/devices/{device.id}/credentials", None),
        ("PUT", f"/devices/remove/{device.id}", None),
        ("PUT", "/devices", {"deviceId": device.id, "name": "mine"}),
        ("DELETE", f"/devices/{device.id}", None),
        (
            "POST",
            "/tasks",
            {"type": "TSL", "deviceIds": [device.id], "config": {"properties": {"led": True}}},
        ),
    ]
    for method, path, body in calls:
        status, answer = await other_application.request(method, path, body)
        assert (status, answer["status"]) == (404, "Failed"), (method, path, answer)
    search = {"pageSize": 10, "pageNumber": 1, "sn": device.sn}
    assert (await other_application.data("POST", "/devices/search", search))["total"] == 0
    assert await device.connect_status() == "DISCONNECT"


async def test_a_task_belongs_to_one_application(application, other_application, device: Device):
    """Another application cannot read the state of a task."""
    body = {"properties": {"led": True}}
    task_id = await application.started("PATCH", f"/devices/{device.id}/properties", body)
    await other_application.log_in()
    assert (await other_application.request("GET", f"/tasks/{task_id}"))[0] == 404
