"""Tasks for many devices, with MongoDB."""

import asyncio
from typing import Any

import pytest

from libs.common.errors import NotFound
from libs.common.identity import Principal, PrincipalKind
from libs.common.store.ids import IdAllocator
from services.device.commands.model import Config, CreateTasks, ProfileValue
from services.device.commands.service import DEVICES_PER_BATCH, CommandService
from tests.integration.device.commands.test_replies import command, issue
from tests.integration.device.telemetry.world import World
from tests.sender import NoIntegrationSender

ME = Principal(PrincipalKind.APPLICATION, "default", "1")
MINE = list(range(1, DEVICES_PER_BATCH + 6))


def process(world: World) -> CommandService:
    """Return the service of one more process."""
    return CommandService(
        things=world.first.things,
        store=world.commands,
        latest=world.latest,
        ids=IdAllocator(world.database, "tasks"),
        sender=NoIntegrationSender(),
        lifetime_seconds=60,
        coded_lifetime_seconds=60,
    )


@pytest.fixture
async def service(world: World) -> CommandService:
    """Return the service, with more devices than it reads at once."""
    for number in MINE:
        await world.add(number)
    return process(world)


async def payloads(world: World) -> dict[int, Any]:
    """Return the payload of the newest command of each device."""
    rows = await world.database["commands"].find().sort([("createdAt", 1), ("_id", 1)]).to_list()
    return {row["thingId"]: row["payload"]["properties"] for row in rows}


async def test_a_partial_struct_is_completed_per_device(world: World, service: CommandService):
    """A partial STRUCT is completed with the values of the same device."""
    await world.latest.apply(
        [(number, 1000, {"limits": {"low": 0, "high": number}}) for number in MINE[1:]]
    )
    await issue(world, command(900, thing=3, payload={"properties": {"limits": {"high": 99}}}))
    config = Config(properties={"limits": {"low": 5}})
    created = await service.create_tasks(ME, CreateTasks("TSL", MINE[::-1], config))
    assert [one.device_id for one in created] == MINE[::-1]
    assert await payloads(world) == {
        1: {"limits": {"low": 5}},
        **{number: {"limits": {"low": 5, "high": number}} for number in MINE[1:]},
        3: {"limits": {"low": 5, "high": 99}},
    }


async def test_concurrent_updates_of_a_struct_build_on_each_other(
    world: World, service: CommandService
):
    """The newest command has the values of all concurrent updates."""
    processes = [service, service, process(world), process(world)]
    for round_ in range(1, 6):
        await asyncio.gather(
            *(
                one.update_properties(ME, 1, {"limits": {member: round_}})
                for one in processes
                for member in ("low", "high")
            )
        )
        config = await service.get_config(ME, 1)
        assert config.properties == {"limits": {"low": round_, "high": round_}}


async def test_a_configuration_has_values_confirmed_during_the_read(
    world: World, service: CommandService, monkeypatch: pytest.MonkeyPatch
):
    """A value that is confirmed during the read is not lost."""
    command = await service.update_properties(ME, 1, {"limits": {"high": 9}})
    pending = world.commands.find_pending_settings

    async def after_an_answer(*args: Any) -> Any:
        await world.say("SN1", {"commandId": command.id, "status": "SUCCESS"}, "reply")
        await world.deal(1)
        return await pending(*args)

    monkeypatch.setattr(world.commands, "find_pending_settings", after_an_answer)
    assert (await service.get_config(ME, 1)).properties == {"limits": {"high": 9}}


@pytest.mark.parametrize(
    "owner",
    [{"tenant": "other"}, {"application": {"applicationId": 2}}, {"application": None}],
    ids=["another tenant's", "another application's", "nobody's"],
)
async def test_a_foreign_device_rejects_all_tasks(
    world: World, service: CommandService, owner: dict[str, Any]
):
    """The error names the device, and no device gets a task."""
    last = MINE[-1]
    await world.database["devices"].update_one({"_id": last}, {"$set": owner})
    config = Config(values=[ProfileValue("a", 1)])
    with pytest.raises(NotFound) as alone:
        await service.create_tasks(ME, CreateTasks("PROFILE", [last], config))
    with pytest.raises(NotFound) as among:
        await service.create_tasks(ME, CreateTasks("PROFILE", MINE, config))
    assert (among.value.text, among.value.field) == (alone.value.text, "deviceId")
    assert await world.database["commands"].count_documents({}) == 0
