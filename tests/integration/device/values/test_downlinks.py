"""Commands to sensors of a network server: encoded, queued, and ended by reported states."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from libs.common.bus import EVENTS
from libs.common.clock import from_ms
from libs.common.errors import InvalidInput, NotFound
from tests.integration.device.values.lora import MODEL, Server, serving
from tests.integration.device.values.world import World


@pytest_asyncio.fixture
async def server(world: World) -> AsyncIterator[Server]:
    async with serving(world) as found:
        yield found


async def command(world: World, device: int) -> dict[str, Any]:
    """Return the newest command of a device."""
    wanted = {"page_size": 1, "page_number": 1}
    page = await world.admin().done("POST", f"/device/{device}/commands/search", wanted)
    found: dict[str, Any] = page["content"][0]
    return found


async def write(world: World, device: int, **properties: Any) -> dict[str, Any]:
    """Update properties of a sensor."""
    made = await world.admin().done(
        "POST", f"/device/{device}/properties", {"properties": properties}
    )
    assert made["status"] == "PENDING"
    return made


async def ended(world: World, device: int, status: str) -> dict[str, Any]:
    """Return the newest command once it has ended."""

    async def over() -> bool:
        return (await command(world, device))["status"] == status

    await world.until(over)
    return await command(world, device)


async def test_a_property_is_encoded_sent_and_confirmed(world: World, server: Server):
    """The command is PENDING until it is sent, and SUCCESS when it is acknowledged."""
    device = await server.add("D-1")
    made = await write(world, device, interval=300)
    (asked,) = await server.asked("D-1")
    assert (asked.id, asked.port, asked.data) == (f"{made['id']}-1", 7, b"\x03\x01\x2c")
    assert asked.confirmed
    assert asked.expires_at == made["expires_at"]
    await server.tell("D-1", asked.id, "SENT")
    assert (await command(world, device))["status"] == "SENT"
    for _ in range(2):
        await server.tell("D-1", asked.id, "ACKNOWLEDGED")
    await ended(world, device, "SUCCESS")
    assert (await world.foundation.values.find_values([device]))[device] == {"interval": 300}
    last = await world.clients.bus.js.get_last_msg(
        EVENTS, f"event.default.device.{device}.reported"
    )
    assert b'"interval":300' in last.data
    await server.tell("D-1", asked.id, "SENT")
    assert (await command(world, device))["status"] == "SUCCESS"


@pytest.mark.parametrize(
    ("state", "error", "reason"),
    [
        ("REFUSED", "queue is full", "queue is full"),
        ("UNACKNOWLEDGED", "", "the device did not acknowledge it"),
    ],
)
async def test_a_downlink_that_did_not_arrive_fails_its_command(
    world: World, server: Server, state: Any, error: str, reason: str
):
    """The command fails with the reason of the server."""
    device = await server.add(f"D-{state}")
    await write(world, device, interval=5)
    (asked,) = await server.asked(f"D-{state}")
    await server.tell(f"D-{state}", asked.id, state, error)
    assert (await ended(world, device, "FAILED"))["error"] == reason


async def test_a_service_is_encoded(world: World, server: Server):
    """A service without inputs is encoded as true, and the caller does not wait."""
    device = await server.add("D-3")
    call = {"service_id": "reboot"}
    await world.admin().done("POST", f"/device/{device}/services/call", call)
    (asked,) = await server.asked("D-3")
    assert asked.data == b"\x10"
    exchange = {"exchange": {"radio.device.D-3.reboot": {}}}
    answer = await world.admin().ask("POST", "/entity/service/call", exchange)
    assert [one["device"] for one in answer.json()["detail"]] == ["D-3"]
    assert len(await server.asked("D-3", 2)) == 2


async def test_an_uplink_with_the_value_confirms_a_command(world: World, server: Server):
    """Several uplinks may confirm a command; an earlier uplink does not."""
    device = await server.add("D-4")
    await server.hear("D-4", b"\x03\x00\x09")
    await world.until(lambda: world.foundation.values.find_values([device]))
    made = await write(world, device, interval=9)
    await server.asked("D-4")
    await server.hear("D-4", b"\x03\x00\x09", ts=made["created_at"] - 10)
    await server.hear("D-4", b"\x03\x00\x08")

    async def heard() -> bool:
        return (await world.foundation.values.find_values([device]))[device].get("interval") == 8

    await world.until(heard)
    assert (await command(world, device))["status"] == "PENDING"
    await server.hear("D-4", b"\x03\x00\x09")
    assert "error" not in await ended(world, device, "SUCCESS")


async def test_a_long_command_is_split(world: World, server: Server):
    """Each property is sent separately, and the command ends when all are acknowledged."""
    device = await server.add("D-5")
    texts = {"label": "x" * 40, "alias": "y" * 40}
    await write(world, device, interval=1, **texts)
    some = await server.asked("D-5", 3)
    assert [len(one.data) for one in some] == [3, 41, 41]
    for one in some[:2]:
        await server.tell("D-5", one.id, "ACKNOWLEDGED")
    assert (await command(world, device))["status"] == "PENDING"
    await server.tell("D-5", some[2].id, "ACKNOWLEDGED")
    await ended(world, device, "SUCCESS")
    await server.hear("D-5", b"\x01\x07", data_rate="SF7BW125", frequency=868_100_000)
    await world.until(lambda: _heard(world, device))
    await write(world, device, **texts)
    assert len((await server.asked("D-5", 4))[3].data) == 82
    await write(world, device, label="z" * 250)
    found = await ended(world, device, "FAILED")
    assert found["error"] == "the codec returns 251 bytes for label, but the data rate carries 222"


async def _heard(world: World, device: int) -> bool:
    return "temperature" in (await world.foundation.values.find_values([device]))[device]


async def test_a_codec_error_fails_the_command(world: World, server: Server):
    """Errors of the codec and the server fail the command with their reason."""
    device = await server.add("D-6")
    await write(world, device, odd=1)
    assert (await ended(world, device, "FAILED"))[
        "error"
    ] == "the codec Error: odd is nothing for me"
    await write(world, device, interval=2, odd=0)
    assert (await ended(world, device, "FAILED"))["error"] == "the codec returns no bytes for odd"
    server.fails = InvalidInput("no such sensor")
    await write(world, device, interval=3)
    found = await ended(world, device, "FAILED")
    assert found["error"] == "integration radio refused: no such sensor"


async def test_a_repeated_downlink_is_unchanged(world: World, server: Server):
    """Downlinks are repeated with the same ids and bytes until a state is reported."""
    device = await server.add("D-7")
    made = await write(world, device, interval=6)
    (asked,) = await server.asked("D-7")
    due = {"_id": int(made["id"])}, {"$set": {"nextSendAt": from_ms(made["created_at"])}}
    await world.database["commands"].update_one(*due)
    again = await server.asked("D-7", 2)
    assert again == [asked, asked]


async def test_states_of_foreign_downlinks_are_rejected(world: World, server: Server):
    """States of other devices and unknown downlinks are rejected."""
    device = await server.add("D-9")
    other = await server.add("D-10")
    made = await write(world, device, interval=4)
    await server.asked("D-9")
    for eui, downlink in (
        ("D-10", f"{made['id']}-1"),
        ("D-9", f"{made['id']}-2"),
        ("D-9", f"{made['id']}-0"),
        ("D-9", "x-1"),
        ("D-11", f"{made['id']}-1"),
    ):
        with pytest.raises(NotFound):
            await server.tell(eui, downlink, "SENT")
    assert other
    assert (await command(world, device))["status"] == "PENDING"


async def test_a_product_without_an_encoder_rejects_commands(world: World, server: Server):
    """A command for a product without an encoder is rejected with the reason."""
    device = await server.add("D-8")
    script = {"script": "function Decode() { return {} }"}
    await world.admin().done("PUT", f"/product/{MODEL}/codec", script)
    body = {"properties": {"interval": 1}}

    async def refused() -> bool:
        answer = await world.admin().ask("POST", f"/device/{device}/properties", body)
        return answer.status_code == 400 and "has no encoder" in answer.text

    await world.until(refused)
