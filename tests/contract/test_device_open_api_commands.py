"""Property updates, configuration, service calls and tasks."""

from typing import Any

import pytest

from tests.contract.client import MODEL, PRODUCT, SAFE, Api, accepted, new_sn
from tests.contract.conftest import Thing

pytestmark = pytest.mark.xdist_group("contract")

TASK = {"taskId", "deviceId", "type", "kind", "status", "createdAt", "expiresAt", "subcommand"}


async def test_an_update_returns_the_accepted_values(api: Api, thing: Thing) -> None:
    """Structs stay nested; the device gets the command and its answer ends the task."""
    given = {"reporting_interval": {"time": 30}, "led": True}
    answer = await api.ask("PATCH", f"/devices/{thing.id}/properties", {"properties": given})
    assert accepted(answer) == {"properties": given}
    (command,) = await api.commands(thing.sn, thing.key)
    assert command["kind"] == "SET_PROPERTIES"
    assert command["properties"] == given
    await api.reply(thing.sn, thing.key, {"commandId": command["commandId"], "status": "SUCCESS"})
    task = accepted(await api.ask("GET", answer.headers["location"]))
    assert task["status"] == "SUCCESS"


async def test_every_fault_of_an_update_is_named_and_nothing_is_sent(
    api: Api, thing: Thing
) -> None:
    """A bound, an unknown, a read-only, a type, a key of an ENUM, a size."""
    bad = {
        "reporting_interval": {"time": 0, "nothing": 1},
        "temperature": 1,
        "unknown": 1,
        "led": "true",
        "lorawan_class": "7",
        "label": "x" * 9,
        "secret": "zz",
        "rules": [{"limit": 1}, {}, {"limit": 1}],
    }
    names = [
        *("reporting_interval.time", "reporting_interval.nothing", "temperature", "unknown"),
        *("led", "lorawan_class", "label", "secret", "rules"),
    ]
    await api.fails(
        400,
        "PATCH",
        f"/devices/{thing.id}/properties",
        {"properties": bad | {"counter": 1}},
        names=[f"properties.{name}" for name in names],
        code="parameter_validation_failed",
    )
    assert await api.commands(thing.sn, thing.key, wait=0) == []


async def test_a_partial_struct_is_merged(api: Api, thing: Thing) -> None:
    """The command contains missing members from the last report.

    The response contains only the given ones.
    """
    await api.report(
        thing.sn, thing.key, {"properties": {"reporting_interval": {"time": 10, "unit": "0"}}}
    )
    given = {"reporting_interval": {"unit": "1"}}
    echoed = await api.done("PATCH", f"/devices/{thing.id}/properties", {"properties": given})
    assert echoed == {"properties": given}
    (command,) = await api.commands(thing.sn, thing.key)
    assert command["properties"] == {"reporting_interval": {"time": 10, "unit": "1"}}


async def test_an_enum_may_be_a_number(api: Api, thing: Thing) -> None:
    """Older pages of the vendor show integers; the device gets the key as text."""
    await api.done("PATCH", f"/devices/{thing.id}/properties", {"properties": {"lorawan_class": 2}})
    (command,) = await api.commands(thing.sn, thing.key)
    assert command["properties"] == {"lorawan_class": "2"}


async def test_a_read_configuration_is_valid_for_a_task(api: Api, thing: Thing) -> None:
    """`POST /tasks` accepts the configuration that `GET` returned, unchanged and edited."""
    path = f"/devices/{thing.id}/config"
    assert await api.done("GET", path) == {"version": "v1.0", "type": "TSL", "properties": {}}
    properties = {"temperature": 1.5, "led": True, "reporting_interval": {"time": 5, "unit": "0"}}
    await api.report(thing.sn, thing.key, {"properties": properties})
    config = await api.done("GET", path)
    del properties["temperature"]
    assert config == {"version": "v1.0", "type": "TSL", "properties": properties}
    config["properties"]["led"] = False
    body = {"type": "TSL", "deviceIds": [thing.id], "config": config}
    await api.done("POST", "/tasks", body)
    assert (await api.done("GET", path))["properties"]["led"] is False
    (command,) = await api.commands(thing.sn, thing.key)
    assert command["properties"] == config["properties"]


@pytest.mark.parametrize("extra", [{}, {"inputs": None}, {"inputs": {}}])
async def test_a_call_answers_without_data(api: Api, thing: Thing, extra: dict) -> None:
    """`inputs` may be absent, null or empty; the command's inputs have short names."""
    path = f"/devices/{thing.id}/services/call"
    answer = await api.ask("POST", path, {"serviceId": "reboot", **extra})
    accepted(answer, data=False)
    (command,) = await api.commands(thing.sn, thing.key)
    assert (command["kind"], command["serviceId"]) == ("CALL_SERVICE", "reboot")
    assert command["inputs"] == {}


async def test_a_call_comes_back_with_its_outputs(api: Api, thing: Thing) -> None:
    """Its task is found by `Location` and shows what the device answered."""
    path = f"/devices/{thing.id}/services/call"
    answer = await api.ask("POST", path, {"serviceId": "measure", "inputs": {"times": 3}})
    accepted(answer, data=False)
    (command,) = await api.commands(thing.sn, thing.key)
    assert command["inputs"] == {"times": 3}
    reply = {"commandId": command["commandId"], "status": "SUCCESS", "outputs": {"mean": 1.5}}
    await api.reply(thing.sn, thing.key, reply)
    task = accepted(await api.ask("GET", answer.headers["location"]))
    assert (task["status"], task["serviceId"]) == ("SUCCESS", "measure")
    assert task["outputs"] == {"mean": 1.5}


def _ids(first: int, second: int) -> list[Any]:
    return [
        [first, second],
        [str(first), second],
        f"{first},{second}",
        f"{first}; {second}",
        [f"{first};{second}"],
    ]


@pytest.mark.parametrize("shape", range(5))
async def test_device_ids_come_in_many_shapes(api: Api, thing: Thing, shape: int) -> None:
    """An array of numbers or text, or text with commas or semicolons; type in any case."""
    other = await api.add()
    body = {
        "type": "tsl" if shape % 2 else "TSL",
        "deviceIds": _ids(thing.id, other)[shape],
        "config": {"version": "v1.0", "type": "tsl", "properties": {"led": True}},
    }
    created = await api.done("POST", "/tasks", body)
    assert set(created) == {"deviceTaskRelations"}
    relations = created["deviceTaskRelations"]
    assert [set(relation) for relation in relations] == [{"deviceId", "taskId"}] * 2
    assert [relation["deviceId"] for relation in relations] == [thing.id, other]
    for relation in relations:
        assert type(relation["taskId"]) is int
        assert 0 < relation["taskId"] < SAFE
        task = await api.done("GET", f"/tasks/{relation['taskId']}")
        assert set(task) >= TASK - {"subcommand"}
        assert None not in task.values()
        assert (task["taskId"], task["deviceId"]) == (relation["taskId"], relation["deviceId"])
        assert task["type"] == "CONFIG"
        assert task["status"] in {"PENDING", "SENT"}


async def test_a_profile_task_configures_a_gateway(api: Api) -> None:
    """`values` of key and any value; GET config answers them in the same layout."""
    model = f"GW-{new_sn()}"
    await api.done(
        "PUT", f"/products/{model}", PRODUCT | {"deviceType": "GATEWAY", "snPrefixes": []}
    )
    sn = new_sn()
    identity = await api.add(sn, model=model)
    key = (await api.done("POST", f"/devices/{identity}/credentials"))["key"]
    values = [{"key": "wan.mode", "value": "dhcp"}, {"key": "ntp", "value": {"on": True, "n": [1]}}]
    config = {"version": "v1.0", "values": values}
    body = {"type": "PROFILE", "deviceIds": str(identity), "config": config}
    created = await api.done("POST", "/tasks", body)
    (command,) = await api.commands(sn, key)
    assert (command["kind"], command["values"]) == ("SET_PROFILE", values)
    await api.reply(sn, key, {"commandId": command["commandId"], "status": "SUCCESS"})
    task = await api.done("GET", f"/tasks/{created['deviceTaskRelations'][0]['taskId']}")
    assert task["status"] == "SUCCESS"
    assert [one["status"] for one in task["subcommand"]] == ["SUCCESS", "SUCCESS"]
    shown = await api.done("GET", f"/devices/{identity}/config")
    assert shown == config
    await api.done("POST", "/tasks", body | {"config": shown})


async def test_a_failed_command_is_a_failed_task(api: Api, thing: Thing) -> None:
    """With the device's reason, and `errCode` as text."""
    answer = await api.ask(
        "PATCH", f"/devices/{thing.id}/properties", {"properties": {"led": True}}
    )
    (command,) = await api.commands(thing.sn, thing.key)
    reply = {"commandId": str(command["commandId"]), "status": "FAILED", "error": "no power"}
    await api.reply(thing.sn, thing.key, reply)
    task = accepted(await api.ask("GET", answer.headers["location"]))
    assert task["status"] == "FAILED"
    assert "no power" in task["errMsg"]
    assert task["errCode"]


async def test_tasks_are_all_or_nothing(api: Api, foreign: Api, thing: Thing) -> None:
    """One bad device or value, and no device is told anything."""
    theirs = await foreign.add()
    for ids, properties, status, name in (
        ([thing.id, theirs], {"led": True}, 404, "deviceId"),
        ([thing.id], {"led": 3}, 400, "config.properties.led"),
        ([thing.id], {}, 400, "config.properties"),
    ):
        body = {"type": "TSL", "deviceIds": ids, "config": {"properties": properties}}
        await api.fails(status, "POST", "/tasks", body, names=[name])
    assert await api.commands(thing.sn, thing.key, wait=0) == []
    await api.fails(404, "GET", "/tasks/1", code="task_not_found", names=["task"])


async def test_another_application_does_not_see_a_task(
    api: Api, foreign: Api, thing: Thing
) -> None:
    """404, like an id that was never given."""
    body = {"type": "TSL", "deviceIds": [thing.id], "config": {"properties": {"led": True}}}
    (relation,) = (await api.done("POST", "/tasks", body))["deviceTaskRelations"]
    await foreign.fails(404, "GET", f"/tasks/{relation['taskId']}", code="task_not_found")


async def test_the_product_has_the_expected_tsl(api: Api, thing: Thing) -> None:
    """The tests above rely on it."""
    assert (await api.done("GET", f"/devices/{thing.id}"))["model"] == MODEL
