"""Commands with write-only values: only delivery reads them, while the command is open."""

from typing import Any

import msgspec
import pytest

from libs.common.tsl import keep_given
from services.device.commands.console import mask_payload
from services.device.commands.events import command_messages, finished_event
from services.device.commands.model import (
    Command,
    Config,
    CreateTasks,
    ProfileValue,
    conceal_payload,
)
from services.device.commands.service import task_from_command
from tests.unit.common.tsl.documents import prop, tsl
from tests.unit.device.commands.test_service import ME, World
from tests.unit.device.things.examples import thing

LOCK = tsl(
    prop("volume", "FLOAT", "RW", fractionDigits=1),
    prop("pin", "STRING", "W"),
    prop("wifi", "STRUCT", "RW"),
    prop("wifi.ssid", "STRING", "RW"),
    prop("wifi.key", "STRING", "W", required=True),
)
GIVEN: dict[str, Any] = {"volume": 50.06, "pin": "8642", "wifi": {"key": "s3cret-wifi"}}
SECRETS = ("8642", "s3cret-wifi")


@pytest.fixture
def world() -> World:
    return World(mine=thing(tsl=LOCK), latest={"wifi": {"ssid": "home"}})


async def update(world: World) -> Command:
    return await world.service().update_properties(ME, 7, GIVEN)


async def test_the_device_gets_write_only_values(world: World):
    command = await update(world)

    sent = msgspec.json.decode(command_messages(command)[0].payload)
    assert sent["properties"] == {
        "volume": 50.1,
        "pin": "8642",
        "wifi": {"ssid": "home", "key": "s3cret-wifi"},
    }


async def test_no_response_or_event_has_write_only_values(world: World):
    command = await update(world)
    command.status = "SUCCESS"

    shown = [
        mask_payload(command),
        task_from_command(command),
        finished_event(command).payload.decode(),
    ]
    text = msgspec.json.encode(shown).decode()
    assert not any(secret in text for secret in SECRETS)
    assert shown[0] == {
        "properties": {"volume": 50.1, "wifi": {"ssid": "home"}, "pin": "******"},
    }
    assert [(one.key, one.value) for one in task_from_command(command).subcommand] == [
        ("volume", 50.1),
        ("wifi", {"ssid": "home"}),
        ("pin", None),
    ]


async def test_a_configuration_lacks_pending_write_only_values(world: World):
    await update(world)

    found = await world.service().get_config(ME, 7)
    assert found.properties == {"volume": 50.1, "wifi": {"ssid": "home"}}


async def test_the_response_of_an_update_has_accepted_values(world: World):
    """It has rounded values and sent members of a STRUCT, without write-only ones."""
    command = await update(world)

    assert keep_given(GIVEN, command.payload["properties"]) == {"volume": 50.1, "wifi": {}}


async def test_a_profile_task_conceals_settings_that_are_write_only_in_the_tsl(world: World):
    secret = [ProfileValue("pin", "8642"), ProfileValue("wifi.key", "s3cret-wifi")]
    config = Config(values=[*secret, ProfileValue("mode", 1)])
    await world.service().create_tasks(ME, CreateTasks("PROFILE", [7], config))

    (command,) = world.commands
    assert command.payload == {"values": [{"key": "mode", "value": 1}]}
    assert dict(command.encoder_input()) == {"pin": "8642", "wifi.key": "s3cret-wifi", "mode": 1}


async def test_an_error_that_repeats_a_write_only_value_is_masked(world: World):
    command = await update(world)

    assert command.mask("the lock refused 8642") == "******"
    assert command.mask("the lock is jammed") == "the lock is jammed"


async def test_a_command_from_before_a_property_became_write_only_is_read_without_it(world: World):
    before = tsl(prop("pin", "STRING", "RW"), prop("volume", "FLOAT", "RW"))
    world.mine = thing(tsl=before)
    command = await world.service().update_properties(ME, 7, {"pin": "8642", "volume": 5})

    readable = command.conceal_values(LOCK)
    assert mask_payload(readable) == {"properties": {"volume": 5, "pin": "******"}}
    assert readable.mask("the lock refused 8642") == "******"


async def test_a_restored_command_that_lacks_its_write_only_values_is_not_delivered(world: World):
    command = await update(world)
    assert command.has_all_values

    command.full_payload = None
    assert not command.has_all_values


def test_a_command_without_write_only_values_is_stored_as_it_is():
    payload = {"properties": {"volume": 1}}

    assert conceal_payload("SET_PROPERTIES", payload, LOCK) == (payload, [])
