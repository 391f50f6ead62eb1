"""The command service checks requests and creates commands."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import permutations
from typing import Any

import msgspec
import pytest

from libs.common.bus import OutboxEntry
from libs.common.errors import Conflict, InvalidInput, NotFound, ThingwayError, TooLarge
from libs.common.identity import Principal, PrincipalKind
from libs.common.integrations.client import CommandTransport
from libs.common.tsl import compile_tsl, parse_document
from services.device.commands.drafts import parse_device_ids
from services.device.commands.events import command_messages
from services.device.commands.model import Command, Config, CreateTasks, ProfileValue, utc_now
from services.device.commands.service import DEVICES_PER_BATCH, CommandService, task_from_command
from services.device.commands.store import CommandsWithEvents
from services.device.things.errors import device_not_found
from services.device.things.model import Thing
from tests.integration.device.telemetry.world import TSL
from tests.sender import NoIntegrationSender
from tests.unit.device.things.examples import thing

ME = Principal(PrincipalKind.APPLICATION, "default", "1")


@dataclass
class World:
    """A fake of every collaborator of the service."""

    mine: Thing = field(default_factory=thing)
    others: list[Thing] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    looks: list[list[int]] = field(default_factory=list)
    """Things whose values were read together."""
    latest: dict[str, Any] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    entries: list[OutboxEntry] = field(default_factory=list)
    confirmed: dict[str, Any] = field(default_factory=dict)
    number: int = 100
    in_turn: list[int] = field(default_factory=list)

    async def find_values(
        self, ids: Sequence[int], session: Any = None
    ) -> dict[int, dict[str, Any]]:
        """Return latest values of things."""
        self.looks.append(list(ids))
        return {id_: dict(self.latest) for id_ in ids}

    async def get_thing(self, principal: Principal, device_id: int) -> Thing:
        """Return the thing of an id."""
        found = await self.find_all_visible(principal, [device_id])
        if not found:
            raise device_not_found(device_id)
        return found[device_id]

    async def find_all_visible(self, principal: Principal, ids: Sequence[int]) -> dict[int, Thing]:
        self.reads.append(len(ids))
        return {one.id: one for one in [self.mine, *self.others] if one.id in ids}

    async def allocate(self) -> int:
        self.number += 1
        return self.number

    async def insert_with_locked_things(
        self, thing_ids: Sequence[int], make: Any
    ) -> Sequence[Command]:
        self.in_turn = list(thing_ids)
        await make(None)  # a conflict
        return await self._insert(*await make(None))

    async def insert_and_publish(self, made: CommandsWithEvents) -> Sequence[Command]:
        self.in_turn = []
        return await self._insert(*made)

    async def _insert(
        self, commands: Sequence[Command], entries: Sequence[OutboxEntry]
    ) -> Sequence[Command]:
        self.commands += commands
        self.entries += entries
        return list(commands)

    async def find_task(self, command_id: int, tenant: str, application_id: int) -> Command | None:
        return next((command for command in self.commands if command.id == command_id), None)

    async def find_pending_settings(
        self, ids: Sequence[int], kind: str, session: Any = None
    ) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {id_: {} for id_ in ids}
        for command in self.commands:
            if command.kind == kind and command.thing_id in found:
                found[command.thing_id].update(command.readable_settings())
        return found

    async def find_profile(self, thing_id: int) -> dict[str, Any]:
        return dict(self.confirmed)

    def service(self, sender: NoIntegrationSender | None = None) -> CommandService:
        return CommandService(
            things=self,
            store=self,
            latest=self,
            ids=self,
            sender=sender or NoIntegrationSender(),  # type: ignore[arg-type]
            lifetime_seconds=60,
            coded_lifetime_seconds=60,
        )


@pytest.fixture
def world() -> World:
    return World()


async def test_an_update_creates_a_command_with_its_event_and_messages(world: World):
    """An update creates a command, its event, and messages for QoS 1 and QoS 0."""
    command = await world.service().update_properties(ME, 7, {"interval": 5})
    assert (command.kind, command.status) == ("SET_PROPERTIES", "PENDING")
    assert command.expires_at - command.created_at == timedelta(seconds=60)
    assert [(entry.subject, entry.stream) for entry in world.entries] == [
        ("event.default.task.101.created", True),
        ("$MQTT.msgs.thing.SN7.down.command", True),
        ("thing.SN7.down.command", False),
    ]


@pytest.mark.parametrize(
    ("properties", "field_"),
    [
        ({}, "properties"),
        ({"temperature": 1}, "properties.temperature"),
        ({"nope": 1, "interval": 2}, "properties.nope"),
        ({"interval": "x"}, "properties.interval"),
        ({"limits": {"low": "x"}}, "properties.limits.low"),
    ],
    ids=str,
)
async def test_one_invalid_property_rejects_the_update(
    world: World, properties: dict[str, Any], field_: str
):
    """One invalid property rejects the update, and the error names its field."""
    with pytest.raises(InvalidInput) as caught:
        await world.service().update_properties(ME, 7, properties)
    assert caught.value.field == field_
    assert world.commands == []


async def test_only_a_partial_struct_locks_its_device(world: World):
    """Only a partial STRUCT locks its device."""
    service = world.service()
    await service.update_properties(ME, 7, {"interval": 4})
    assert world.in_turn == []
    await service.update_properties(ME, 7, {"interval": 4, "limits": {"low": 3}})
    assert world.in_turn == [7]


async def test_devices_are_checked_together(world: World):
    """Values are read once, only for devices with a partial STRUCT."""
    struct, bad, plain = (thing(id=number, sn=f"SN{number}") for number in (8, 9, 10))
    world.latest = {"limits": {"low": 1, "high": 9}}
    service = world.service()
    first, second, refused, whole = await service.draft_property_updates(
        [
            (world.mine, {"limits": {"low": 3}}),
            (struct, {"limits": {"high": 4}}),
            (bad, {"interval": "x"}),
            (plain, {"interval": 5}),
        ]
    )
    assert world.looks == [[7, 8]]
    assert isinstance(refused, InvalidInput)
    drafts: Any = [first, second, whole]
    commands = await service.issue(ME, drafts)
    assert [command.payload["properties"] for command in commands] == [
        {"limits": {"low": 3, "high": 9}},
        {"limits": {"low": 1, "high": 4}},
        {"interval": 5},
    ]


async def test_a_repeated_transaction_allocates_no_more_ids(world: World):
    """A repeated transaction allocates no more ids."""
    service = world.service()
    for properties in ({"limits": {"low": 3}}, {"interval": 5}, {"limits": {"low": 4}}):
        await service.update_properties(ME, 7, properties)
    assert [command.id for command in world.commands] == [101, 102, 103]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("SET_PROPERTIES", {"properties": {"name": 'ä"', "limits": {"low": 1}}}),
        ("SET_PROFILE", {"values": [{"key": "a", "value": None}]}),
        ("CALL_SERVICE", {"serviceId": "reboot", "inputs": {}}),
    ],
)
def test_an_encoded_payload_is_sent_as_it_is(kind: Any, payload: dict[str, Any]):
    """The first message has the same bytes as a repetition."""
    moment, mine = utc_now(), thing()
    command = Command(
        id=5,
        thing_id=7,
        sn="SN7",
        tenant="default",
        application_id=1,
        kind=kind,
        payload=dict.fromkeys(payload),
        full_payload=payload,
        profile=mine.profile,
        created_at=moment,
        expires_at=moment,
    )
    again = command_messages(command)
    assert command_messages(command, msgspec.json.encode(payload)) == again
    assert msgspec.json.decode(again[0].payload) == command.to_wire()


async def test_an_integration_without_commands_rejects_those_of_applications(world: World):
    """An application gets 409 for an integration without commands; a user does not."""
    world.mine = thing(integration="hooks")
    with pytest.raises(Conflict) as refusal:
        await world.service().update_properties(ME, 7, {"interval": 4})
    assert (refusal.value.code, world.commands) == ("device_of_integration", [])
    await world.service().update_thing_properties(
        Principal(PrincipalKind.USER, "default", "1"), world.mine, {"interval": 4}
    )
    assert len(world.commands) == 1


class Lamps(NoIntegrationSender):
    """An integration that delivers commands."""

    async def get_transport(self, integration: str) -> CommandTransport:
        return "commands"

    def send(self, commands: Iterable[Command], additional: object = None) -> None:
        self.carried = [command.carrier for command in commands]


async def test_an_integration_delivers_commands_of_applications(
    world: World,
):
    """The integration delivers commands of applications, too."""
    world.mine, lamps = thing(integration="lamps"), Lamps()
    await world.service(lamps).update_properties(ME, 7, {"interval": 4})
    assert lamps.carried == ["lamps"]


async def test_a_configuration_includes_open_commands(world: World):
    """A configuration has latest values, overridden by open commands, without read-only ones."""
    service = world.service()
    world.latest = {"interval": 1, "temperature": 20.0, "limits": {"low": 1, "high": 9}}
    await service.update_properties(ME, 7, {"limits": {"low": 3}})
    await service.update_properties(ME, 7, {"interval": 4})
    await service.update_properties(ME, 7, {"interval": 5})
    config = await service.get_config(ME, 7)
    assert (config.type, config.version) == ("TSL", "v1.0")
    assert config.properties == {"interval": 5, "limits": {"low": 3, "high": 9}}


async def test_a_gateway_shows_its_profile(world: World):
    """A gateway's configuration has confirmed values, overridden by open commands."""
    world.mine = thing(device_type="GATEWAY")
    world.confirmed = {"a": 1, "b": 2}
    service = world.service()
    config = Config(values=[ProfileValue("b", 3), ProfileValue("c", 4)])
    await service.create_tasks(ME, CreateTasks("PROFILE", [7], config))
    found = await service.get_config(ME, 7)
    assert found.values == [
        {"key": "a", "value": 1},
        {"key": "b", "value": 3},
        {"key": "c", "value": 4},
    ]


@pytest.mark.parametrize(
    ("request_", "field_"),
    [
        (CreateTasks("TSL", [7], Config()), "config.properties"),
        (CreateTasks("PROFILE", [7], Config()), "config.values"),
        (CreateTasks("OTHER", [7], Config()), "type"),
        (CreateTasks("TSL", "", Config()), "deviceIds"),
        (CreateTasks("TSL", [7], Config(properties={"nope": 1})), "config.properties.nope"),
        (
            CreateTasks("PROFILE", [7], Config(values=[ProfileValue("a", 2**64)])),
            "config.values[0]",
        ),
    ],
    ids=range(6),
)
async def test_an_invalid_task_names_its_field(world: World, request_: CreateTasks, field_: str):
    """An invalid task names its field and creates nothing."""
    with pytest.raises(InvalidInput) as caught:
        await world.service().create_tasks(ME, request_)
    assert caught.value.field == field_
    assert world.commands == []


@pytest.mark.parametrize(
    ("kind", "config", "field", "device"),
    [
        ("TSL", Config(properties={"interval": "x"}), "config.properties.interval", True),
        ("TSL", Config("v9", properties={"interval": 1}), "config.version", True),
        ("TSL", Config(type="PROFILE", properties={"interval": 1}), "config.type", True),
        ("TSL", Config(type="v9", properties={"interval": 1}), "config.type", True),
        ("PROFILE", Config("v9", values=[ProfileValue("a", 1)]), "config.version", True),
        ("PROFILE", Config(type="v1.0", values=[ProfileValue("a", 1)]), "config.type", True),
        ("TSL", Config(properties={"interval": 1}, values=[]), "config.values", False),
        ("PROFILE", Config(properties={}, values=[ProfileValue("a")]), "config.properties", False),
    ],
    ids=str,
)
async def test_a_fault_of_one_device_names_it(
    world: World, kind: str, config: Config, field: str, device: bool
):
    """An error of one device names the device once; an invalid layout names none."""
    with pytest.raises(InvalidInput) as caught:
        await world.service().create_tasks(ME, CreateTasks(kind, [7], config))
    assert caught.value.field == field
    assert caught.value.text.count("(device 7)") == device
    assert all("(device 7)" in one["reason"] for one in caught.value.detail or [])
    assert world.commands == []


@pytest.mark.parametrize("named", [None, "TSL", "tsl", "v1.0", "V1.0"])
@pytest.mark.parametrize("version", [None, "v1.0"])
async def test_a_configuration_may_name_its_version_and_type(
    world: World, named: str | None, version: str | None
):
    """A configuration may name the TSL version of the device, and its type."""
    config = Config(version, named, {"interval": 1})
    (created,) = await world.service().create_tasks(ME, CreateTasks("TSL", [7], config))
    assert created.device_id == 7


async def test_an_unknown_device_rejects_all_tasks(world: World):
    """An unknown device rejects the whole request."""
    config = Config(properties={"interval": 1})
    with pytest.raises(NotFound):
        await world.service().create_tasks(ME, CreateTasks("TSL", "7;8", config))
    assert world.commands == []


async def _refusal(world: World, ids: list[int], config: Config) -> tuple[Any, ...] | None:
    """Return the error of tasks for `ids`, or None."""
    kind = "PROFILE" if config.values else "TSL"
    try:
        await world.service().create_tasks(ME, CreateTasks(kind, list(ids), config))
    except ThingwayError as error:
        return type(error), error.code, error.field, error.text
    finally:
        world.commands.clear()
    return None


@pytest.mark.parametrize("ids", list(permutations([7, 8, 9])), ids=str)
@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(properties={"interval": 1}),
        Config(properties={"interval": "x", "nope": 1}),
        Config(values=[ProfileValue("a", 1)]),
        Config(values=[ProfileValue("a", 2**64)]),
    ],
    ids=["empty", "good for one", "bad", "profile", "bad profile"],
)
async def test_the_first_rejected_device_is_named(
    world: World, ids: tuple[int, ...], config: Config
):
    """The error is the one of the first rejected device."""
    empty = compile_tsl(parse_document({**TSL, "properties": TSL["properties"][:1]}))
    world.others = [thing(id=9, tsl=empty)]
    alone = [await _refusal(world, [id_], config) for id_ in ids]
    assert await _refusal(world, list(ids), config) == next(filter(None, alone))


async def test_a_thousand_devices_are_read_in_batches(world: World):
    """A thousand devices are read in batches and get a command each, in order."""
    world.others = [thing(id=number) for number in range(8, 1007)]
    ids = list(range(1006, 6, -1))
    config = Config(properties={"limits": {"low": 3}})
    world.latest = {"limits": {"low": 1, "high": 9}}
    created = await world.service().create_tasks(ME, CreateTasks("TSL", ids, config))
    assert [one.device_id for one in created] == ids
    assert world.reads == [DEVICES_PER_BATCH] * (1000 // DEVICES_PER_BATCH)
    payload = {"properties": {"limits": {"low": 3, "high": 9}}}
    assert [command.payload for command in world.commands] == [payload] * 1000


async def test_a_command_larger_than_a_message_is_rejected(world: World):
    """A command larger than a message is rejected with 413."""
    config = Config(values=[ProfileValue("a", "x" * 2_000_000)])
    with pytest.raises(TooLarge):
        await world.service().create_tasks(ME, CreateTasks("PROFILE", [7], config))
    assert world.commands == []


async def test_a_service_call_is_checked(world: World):
    """An unknown service and an invalid input are rejected."""
    service = world.service()
    for service_id, inputs in (("nope", None), ("reboot", {"x": 1})):
        with pytest.raises(InvalidInput):
            await service.call_service(ME, 7, service_id, inputs)
    command = await service.call_service(ME, 7, "reboot", None)
    assert command.payload == {"serviceId": "reboot", "inputs": {}}
    task = await service.get_task(ME, command.id)
    assert (task.type, task.service_id, task.status) == ("SERVICE", "reboot", "PENDING")
    assert task_from_command(command) == task
    with pytest.raises(NotFound):
        await service.get_task(ME, 5)


@pytest.mark.parametrize(
    ("given", "ids"),
    [([1, "2"], [1, 2]), ("1,2;3", [1, 2, 3]), ("1, 1", [1]), (["4,5", 6], [4, 5, 6])],
    ids=str,
)
def test_device_ids_are_read_in_every_spelling(given: Any, ids: list[int]):
    """Device ids may be numbers, text, or text with commas or semicolons."""
    assert parse_device_ids(given) == ids


@pytest.mark.parametrize("given", [[], "", "x", "1,,2", "-1", "0", str(2**53), "9" * 40, "1.5"])
def test_other_device_ids_are_refused(given: Any):
    """Invalid device ids are rejected, and the error names the field."""
    with pytest.raises(InvalidInput) as caught:
        parse_device_ids(given)
    assert caught.value.field == "deviceIds"
