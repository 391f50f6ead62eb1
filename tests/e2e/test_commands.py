"""Commands: from the application to the device and back, over each protocol."""

import asyncio

import pytest

from tests.e2e.devices import Device
from tests.e2e.listening import Listener
from tests.e2e.waiting import PATIENCE, until

pytestmark = pytest.mark.xdist_group("platform")


async def test_a_property_update_is_confirmed_everywhere(application, device: Device, events):
    """The device's SUCCESS ends the task; the new properties are reported."""
    async with device.mqtt() as mqtt:
        task_id = await application.started(
            "PATCH", f"/devices/{device.id}/properties", {"properties": {"interval": 30}}
        )
        command = await mqtt.command()
        assert command["commandId"] == task_id
        assert command["kind"] == "SET_PROPERTIES"
        assert command["properties"] == {"interval": 30}
        await mqtt.answer(command)
        finished = await events.wait(f"event.default.task.{task_id}.finished")
    assert (finished["status"], finished["device"]["deviceId"]) == ("SUCCESS", device.id)
    assert finished["subcommand"] == [{"key": "interval", "status": "SUCCESS", "value": 30}]
    assert (await device.task(task_id))["status"] == "SUCCESS"
    await events.wait(f"event.default.device.{device.id}.reported")
    assert [one["properties"] for one in await device.history()] == [{"interval": 30}]
    assert (await device.settings())["interval"] == 30


async def test_a_partial_struct_is_merged(application, device: Device):
    """Updating one member of a STRUCT leaves the others as they were."""
    wifi = {"ssid": "home", "channel": 3}
    await device.http("POST", "report", {"properties": {"wifi": wifi}}, wait="stored")
    async with device.mqtt() as mqtt:
        body = {"properties": {"wifi": {"channel": 11}}}
        task_id = await application.started("PATCH", f"/devices/{device.id}/properties", body)
        await mqtt.answer(await mqtt.command())
        assert (await device.ended(task_id))["status"] == "SUCCESS"
    assert (await device.settings())["wifi"] == {"ssid": "home", "channel": 11}


async def test_a_service_call_brings_outputs(application, device: Device, events: Listener):
    """A service's outputs are in the task and in the `replied` event."""
    async with device.mqtt() as mqtt:
        body = {"serviceId": "measure", "inputs": {"times": 2}}
        task_id = await application.started("POST", f"/devices/{device.id}/services/call", body)
        command = await mqtt.command()
        assert (command["kind"], command["serviceId"]) == ("CALL_SERVICE", "measure")
        assert command["inputs"] == {"times": 2}
        await mqtt.answer(command, outputs={"mean": 20.5})
        called = await events.wait(f"event.default.service.{device.id}.called")
        replied = await events.wait(f"event.default.service.{device.id}.replied")
    assert called["taskId"] == replied["taskId"] == task_id
    assert (replied["status"], replied["outputs"]) == ("SUCCESS", {"mean": 20.5})
    task = await device.task(task_id)
    assert (task["status"], task["outputs"]) == ("SUCCESS", {"mean": 20.5})


async def test_a_refusing_device_fails_the_task(application, device: Device, events: Listener):
    """The application gets FAILED and the error; nothing changes."""
    async with device.mqtt() as mqtt:
        body = {"properties": {"interval": 31}}
        task_id = await application.started("PATCH", f"/devices/{device.id}/properties", body)
        await mqtt.answer(await mqtt.command(), "FAILED", error="too busy")
        finished = await events.wait(f"event.default.task.{task_id}.finished")
    assert (finished["status"], finished["errMsg"]) == ("FAILED", "too busy")
    task = await device.task(task_id)
    assert (task["status"], task["errMsg"]) == ("FAILED", "too busy")
    assert await device.history() == []
    assert (await device.settings()).get("interval") != 31


async def test_a_configuration_task_reaches_every_device(application, device: Device, events):
    """`POST /tasks` makes one task per device, and each ends on its own."""
    other = await application.add_device()
    async with device.mqtt() as first, other.mqtt() as second:
        body = {
            "type": "TSL",
            "deviceIds": f"{device.id};{other.id}",
            "config": {"properties": {"led": True}},
        }
        made = await application.data("POST", "/tasks", body)
        tasks = {
            deviceTaskRelation["deviceId"]: deviceTaskRelation["taskId"]
            for deviceTaskRelation in made["deviceTaskRelations"]
        }
        await first.answer(await first.command())
        await second.answer(await second.command(), "FAILED", error="no LED")
        good = await events.wait(f"event.default.task.{tasks[device.id]}.finished")
        bad = await events.wait(f"event.default.task.{tasks[other.id]}.finished")
    assert (good["status"], bad["status"]) == ("SUCCESS", "FAILED")
    assert (await device.settings())["led"] is True


async def test_commands_are_polled_over_http(application, device: Device, events: Listener):
    """A waiting poll gets the command at once, and the reply closes it."""
    poll = asyncio.create_task(device.http("GET", "commands", wait=20))
    await device.becomes("ONLINE")  # the poll has been heard
    body = {"properties": {"led": True}}
    task_id = await application.started("PATCH", f"/devices/{device.id}/properties", body)
    async with asyncio.timeout(30):
        status, answer = await poll
    assert status == 200
    [command] = answer["data"]["commands"]
    assert command["commandId"] == task_id
    status, answer = await device.http("POST", "reply", {"commandId": task_id, "status": "SUCCESS"})
    assert (status, answer["data"]["accepted"]) == (202, 1)
    await events.wait(f"event.default.task.{task_id}.finished", lambda e: e["status"] == "SUCCESS")
    _, answer = await device.http("GET", "commands")
    assert answer["data"]["commands"] == []


async def test_a_plain_nats_device_is_commanded(application, device: Device):
    """A device on plain NATS gets its commands on `thing.{sn}.down.command`."""
    async with device.nats() as client:
        subscription = await client.subscribe(f"thing.{device.sn}.down.>")
        await client.flush()
        body = {"properties": {"led": False}}
        task_id = await application.started("PATCH", f"/devices/{device.id}/properties", body)
        message = await subscription.next_msg(timeout=PATIENCE)
        assert str(task_id).encode() in message.data
        answer = b'{"commandId":%d,"status":"SUCCESS"}' % task_id
        await client.jetstream().publish(f"thing.{device.sn}.up.reply", answer)
        assert (await device.ended(task_id))["status"] == "SUCCESS"


async def test_a_persistent_session_gets_the_command_on_reconnection(application, device: Device):
    """The command waits for an offline device."""
    async with device.mqtt(identifier=f"c-{device.sn}", clean=False):
        await device.becomes("ONLINE")
    await device.becomes("OFFLINE")
    body = {"properties": {"interval": 12}}
    task_id = await application.started("PATCH", f"/devices/{device.id}/properties", body)
    async with device.mqtt(identifier=f"c-{device.sn}", clean=False) as mqtt:
        command = await mqtt.command()
        assert command["commandId"] == task_id
        await mqtt.answer(command)
        assert (await device.ended(task_id))["status"] == "SUCCESS"


async def test_an_unanswered_command_is_sent_again_on_reconnection(application, device: Device):
    """A device that left before its answer gets the command again in a clean session."""
    async with device.mqtt() as mqtt:
        body = {"properties": {"interval": 13}}
        task_id = await application.started("PATCH", f"/devices/{device.id}/properties", body)
        assert (await mqtt.command())["commandId"] == task_id
    await device.becomes("OFFLINE")
    async with device.mqtt() as mqtt:
        command = await mqtt.command()
        assert command["commandId"] == task_id
        await mqtt.answer(command)
        await mqtt.answer(command)  # a second answer changes nothing
        assert (await device.ended(task_id))["status"] == "SUCCESS"
        await mqtt.report({"counter": 1})
        await device.stored({"counter": 1})
    assert [one["properties"] for one in await device.history()] == [
        {"interval": 13},
        {"counter": 1},
    ]


async def test_a_device_cannot_answer_for_another(application, device: Device, dead: Listener):
    """A reply to another device's command is refused; the task stays open."""
    other = await application.add_device()
    body = {"properties": {"interval": 14}}
    task_id = await application.started("PATCH", f"/devices/{device.id}/properties", body)
    async with other.mqtt() as mqtt:
        await mqtt.answer({"commandId": task_id})
        refused = await dead.wait(f"dead.uplink.{other.sn}")
    assert "the device has no command" in refused["reason"]
    assert (await device.task(task_id))["status"] in {"PENDING", "SENT"}


async def test_a_bad_update_sends_nothing(application, device: Device):
    """The answer names every fault of the update; the device receives nothing."""
    async with device.mqtt() as mqtt:
        path = f"/devices/{device.id}/properties"
        faulty = {"interval": 0, "temperature": 5, "nope": 1, "led": True}
        status, body = await application.request("PATCH", path, {"properties": faulty})
        assert status == 400
        assert all(name in body["errMsg"] for name in ("interval", "temperature", "nope"))
        await application.started("PATCH", path, {"properties": {"led": False}})
        assert (await mqtt.command())["properties"] == {"led": False}


async def test_auto_provision_sends_the_first_configuration(application):
    """With `autoProvision` a device gets its configuration at its first connection."""
    config = {"type": "TSL", "properties": {"interval": 15}}
    device = await application.add_device(autoProvision=True, config=config)

    async with device.mqtt() as mqtt:
        command = await mqtt.command()
        assert command["properties"] == {"interval": 15}
        await mqtt.answer(command)

        async def settled() -> bool:
            return (await device.settings()).get("interval") == 15

        await until(settled)
