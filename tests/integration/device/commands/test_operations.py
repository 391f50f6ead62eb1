"""MongoDB's operations of a confirmed command, counted by its profiler."""

import asyncio
from collections import Counter

from services.device.commands.service import CommandService
from tests.integration.device.commands.test_tasks import ME, process
from tests.integration.device.telemetry.world import World

DEVICES, ROUNDS, MAX_OPERATIONS = 4, 10, 6
PERIODIC = 0.2
"""Operations by which published commands are marked together."""


async def execute_commands(world: World, service: CommandService) -> None:
    """Update a property of each device concurrently; each reply is a batch."""
    commands = await asyncio.gather(
        *(service.update_properties(ME, number + 1, {"interval": 5}) for number in range(DEVICES))
    )
    for command in commands:
        await world.say(command.sn, {"commandId": command.id, "status": "SUCCESS"}, "reply")
        await world.deal(1)


async def test_a_confirmed_command_costs_six_operations(world: World):
    """Commits and the periodic reads of alarm rules are not counted."""
    service = process(world)
    for number in range(DEVICES):
        await world.add(number + 1)
    await execute_commands(world, service)  # fills the caches
    await world.database.command("profile", 2)
    for _ in range(ROUNDS):
        await execute_commands(world, service)
    await world.database.command("profile", 0)
    counts = Counter[tuple[str, str]]()
    async for one in world.database["system.profile"].find():
        name = next(iter(one["command"])) if one["op"] == "command" else one["op"]
        counts[one["ns"].partition(".")[2], name] += 1
    for collection, name in list(counts):
        if collection.startswith("alarm_") or name in {"commitTransaction", "profile"}:
            del counts[collection, name]
    assert counts.total() / DEVICES / ROUNDS < MAX_OPERATIONS + PERIODIC, counts
