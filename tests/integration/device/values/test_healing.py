"""Requests to sensors for missing readings, and their responses from memory."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from libs.common.bus import RpcServer
from libs.common.clock import now_ms
from libs.common.contracts.frames import DeviceFrame, Downlink, Frame
from libs.common.errors import Unavailable
from libs.common.identity import Principal
from libs.common.tsl import to_wire
from services.device.commands.service import CommandService
from services.device.commands.wiring import wire_commands
from services.device.lorawan import gaps as store
from services.device.lorawan import healing as working
from services.device.lorawan.codec_service import CodecService
from services.device.lorawan.healing import Healer
from services.device.lorawan.wiring import wire_codecs, wire_lorawan
from services.device.telemetry.partitions import (
    KEY_FORMAT,
    Partitions,
    history_key,
    partition_number,
)
from services.device.telemetry.wiring import wire_telemetry
from tests.integration.device.values import lora
from tests.integration.device.values.lora import MODEL, SCRIPT, Server, serving
from tests.integration.device.values.test_gaps import page
from tests.integration.device.values.world import World
from tests.templates import template

INTERVAL = 600
"""Seconds between two readings."""
ANSWERED = 8
"""Readings of an uplink that answers."""
PATH = f"/product/{MODEL}/codec/healing"


@pytest_asyncio.fixture
async def server(world: World) -> AsyncIterator[Server]:
    async with serving(world) as found:
        yield found
        if (await world.admin().done("GET", PATH))["on"]:
            await world.admin().done("PUT", PATH, {"on": False})


@dataclass
class Sensor:
    """A sensor with a reading every ten minutes and a memory; its uplinks may be lost."""

    server: Server
    eui: str
    device: int
    memory: dict[int, int] = field(default_factory=dict)
    """Readings by their times, in seconds."""
    counter: int = 0
    asked: int = 0

    def read(self, at: int) -> bytes:
        """Record a reading and count its uplink."""
        value = at // INTERVAL % 50
        self.memory[at] = value
        self.counter += 1
        return bytes([1, value])

    def uplink(self, data: bytes, at: int | None = None) -> DeviceFrame:
        ts = None if at is None else at * 1000 + 321
        frame = Frame(port=85, data=data, counter=self.counter, session="s", ts=ts)
        return DeviceFrame(tenant="default", identifier=self.eui, frame=frame)

    def answers(self, downlink: Downlink) -> Iterator[DeviceFrame]:
        """Return the recorded readings of a requested range."""
        assert downlink.data[0] == 0x6C
        start, end = struct.unpack(">II", downlink.data[1:])
        rows = [row for row in self.memory.items() if start <= row[0] <= end]
        for first in range(0, len(rows), ANSWERED):
            self.counter += 1
            some = rows[first : first + ANSWERED]
            yield self.uplink(b"".join(struct.pack(">BIB", 32, *row) for row in some))

    async def answer(self) -> None:
        """Acknowledge and answer each new request."""
        new = self.server.queued.get(self.eui, [])[self.asked :]
        for downlink in new:
            self.asked += 1
            await self.server.tell(self.eui, downlink.id, "ACKNOWLEDGED")
            if frames := list(self.answers(downlink)):
                assert (await self.server.tells.send_frames(frames)).refused == []


class Ts302(Sensor):
    """A sensor of a public template, with two values of a channel."""

    model, prefix, key = "ts302_v2", b"\xfd\x6c", "temperature_chn1"

    def read(self, at: int) -> bytes:
        super().read(at)
        return b"\x03\x67" + struct.pack("<h", self.memory[at] * 10)

    def answers(self, downlink: Downlink) -> Iterator[DeviceFrame]:
        assert downlink.data.startswith(self.prefix)
        start, end = struct.unpack("<II", downlink.data[len(self.prefix) :])
        rows = [row for row in self.memory.items() if start <= row[0] <= end]
        for first in range(0, len(rows), ANSWERED // 2):
            self.counter += 1
            some = rows[first : first + ANSWERED // 2]
            yield self.uplink(b"".join(self.remembered(*row) for row in some))

    def remembered(self, at: int, value: int) -> bytes:
        return b"\x20\xce" + struct.pack("<IBhh", at, 0x11, -999, value * 10)


class Wt102(Ts302):
    """A sensor of another public template."""

    model, prefix, key = "wt102", b"\xbb", "temperature"

    def read(self, at: int) -> bytes:
        super().read(at)
        return b"\x01" + struct.pack("<h", self.memory[at] * 100)

    def remembered(self, at: int, value: int) -> bytes:
        return b"\xed\x01" + struct.pack("<I", at) + b"\x01" + struct.pack("<h", value * 100)


async def lose(
    sensors: list[Sensor], lost: set[int], readings: int, frames_at_once: int = 400
) -> list[int]:
    """Record readings of all sensors, and lose some uplinks; return their times."""
    last = now_ms() // 1000 - 60
    times = [last - INTERVAL * (readings - 1 - at) for at in range(readings)]
    told = []
    for sensor in sensors:
        for at, ts in enumerate(times):
            data = sensor.read(ts)
            if at not in lost:
                told.append(sensor.uplink(data, ts))
    tells = sensors[0].server.tells
    for first in range(0, len(told), frames_at_once):
        assert (await tells.send_frames(told[first : first + frames_at_once])).refused == []
    return times


async def history(world: World, device: int, first: int, last: int) -> list[tuple[int, Any]]:
    """Return the history of a device in the order of time."""
    found = []
    keys = {"$gte": history_key(device, first, 0), "$lte": history_key(device, last, 2**63)}
    for week in range(partition_number(first), partition_number(last) + 1):
        rows = Partitions(world.database).collection(week).find({"_id": keys}, sort=[("_id", 1)])
        found += [(KEY_FORMAT.unpack(row["_id"])[1], row["p"]) async for row in rows]
    return found


async def add(server: Server, *euis: str) -> list[Sensor]:
    return [Sensor(server, eui, await server.add(eui)) for eui in euis]


async def states(world: World, device: int) -> list[str]:
    return [one["state"] for one in await page(world, device)]


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        (Ts302, 10),
        pytest.param(Ts302, 100, marks=pytest.mark.slow),
        pytest.param(Wt102, 100, marks=pytest.mark.slow),
    ],
)
async def test_readings_of_six_hours_are_healed(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: type[Ts302], count: int
) -> None:
    """All lost readings are received once, at their own times, within the budget."""
    found, model = template(kind.model), kind.model.upper()
    tsl = to_wire(found.document)
    monkeypatch.setattr(lora, "MODEL", model)
    monkeypatch.setattr(lora, "SENSOR", tsl)
    await world.put_product(model, tsl)
    codec = f"/product/{model}/codec"
    await world.admin().done("PUT", codec, msgspec.to_builtins(found.codec))
    await world.admin().done("PUT", f"{codec}/healing", {"on": True, "hour": 2, "day": 3})
    server = Server(world)
    async with world.hosting(server):
        euis = [f"{model}-{count}-{at}" for at in range(count)]
        await lose_six_hours(world, [kind(server, eui, await server.add(eui)) for eui in euis])
    await world.admin().done("PUT", f"{codec}/healing", {"on": False})


async def lose_six_hours(world: World, sensors: list[Ts302]) -> None:
    """Lose the uplinks of six hours, and receive all readings later."""
    count, server = len(sensors), sensors[0].server
    lost = set(range(6, 42)) - {20}  # one in the middle gets through: two gaps
    times = await lose(sensors, lost, readings=48)
    began = now_ms()
    gaps = world.database["gaps"]
    own = {
        "_id": {
            "$gte": history_key(sensors[0].device, 0, 0),
            "$lt": history_key(sensors[-1].device + 1, 0, 0),
        }
    }

    async def healed() -> bool:
        for sensor in sensors:
            await sensor.answer()
            if sensor.counter < 60:
                more = sensor.uplink(sensor.read(times[-1] + sensor.counter))
                assert (await server.tells.send_frames([more])).refused == []
        return bool(await gaps.count_documents(own | {"state": "HEALED"}) == 2 * count)

    await world.until(healed, 120)
    for sensor in sensors:
        rows = await history(world, sensor.device, times[0] * 1000, times[-1] * 1000 + 999)
        expected = [
            (ts * 1000 + (0 if at in lost else 321), {sensor.key: sensor.memory[ts]})
            for at, ts in enumerate(times)
        ]
        assert rows == expected
        assert len(server.queued[sensor.eui]) == 2
        (latest,) = (await world.foundation.values.find_entries([sensor.device])).values()
        assert latest[sensor.key]["t"] >= began - 1000 > times[-2] * 1000
    shown = await page(world, sensors[0].device)
    assert [(entry["state"], entry["missing"], entry["found"]) for entry in shown] == [
        ("HEALED", 21, 21),
        ("HEALED", 14, 14),
    ]


def create_healer(world: World) -> Healer:
    """Construct the healer of another replica."""
    clients, things = world.clients, world.foundation.things
    store, rpc = world.foundation.commands, RpcServer(world.clients.bus, "replica")
    codecs = wire_codecs(clients, things=things)
    telemetry = wire_telemetry(
        clients,
        rpc=rpc,
        things=things,
        values=world.foundation.values,
        system=world.outside,
        uplinks=["UPLINK"],
        reconnects=store.schedule,
    )
    commands = wire_commands(
        clients, things=things, telemetry=telemetry, store=store, encoder=codecs.encoder
    )
    return wire_lorawan(
        clients, rpc=rpc, things=things, telemetry=telemetry, commands=commands, codecs=codecs
    ).healer


async def look(replica: Healer) -> None:
    """Check all devices of the tenant once."""
    async for _ in replica.check_tenant("default"):
        pass


async def test_requests_stay_within_the_budget(world: World, server: Server) -> None:
    """The largest gap is requested first, and the others stay open."""
    await world.admin().done("PUT", PATH, {"on": True, "hour": 60, "day": 2})
    (sensor,) = await add(server, "H-budget")
    await lose([sensor], {1, 3, 5, 6, 8, 9, 10}, readings=13)

    async def two_healed() -> bool:
        await sensor.answer()
        return sorted(await states(world, sensor.device)) == ["HEALED"] * 2 + ["OPEN"] * 2

    await world.until(two_healed)
    replica = create_healer(world)
    await asyncio.gather(*(look(replica) for _ in range(3)))
    assert len(server.queued["H-budget"]) == 2
    assert [(one["missing"], one["state"]) for one in await page(world, sensor.device)] == [
        (3, "HEALED"),
        (2, "HEALED"),
        (1, "OPEN"),
        (1, "OPEN"),
    ]


async def test_two_replicas_send_one_request(world: World, server: Server) -> None:
    """Two replicas send one request of a device."""
    (sensor,) = await add(server, "H-both")
    await lose([sensor], {2, 3, 6}, readings=9)
    await world.until(lambda: _gaps(world, sensor, 2))
    await world.admin().done("PUT", PATH, {"on": True, "hour": 60, "day": 60})
    replica = create_healer(world)
    await asyncio.gather(*(look(replica) for _ in range(6)))
    await server.asked("H-both")
    for _ in range(3):
        await look(replica)
    commands = world.database["commands"]
    assert await commands.count_documents({"thingId": sensor.device}) == 1
    assert sorted(await states(world, sensor.device)) == ["ASKED", "OPEN"]


async def _gaps(world: World, sensor: Sensor, count: int) -> bool:
    return len(await page(world, sensor.device)) == count


async def test_a_gap_is_given_up_with_the_reason(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap is given up after three requests without readings."""
    monkeypatch.setattr(working, "NO_READINGS_TIMEOUT_MS", 0)
    await world.admin().done("PUT", PATH, {"on": True, "hour": 60, "day": 60})
    forgetful, deaf = await add(server, "H-forgets", "H-deaf")
    await lose([forgetful, deaf], {2, 3, 4}, readings=7)
    forgetful.memory = dict(list(forgetful.memory.items())[:4])

    async def given_up() -> bool:
        await forgetful.answer()
        for downlink in server.queued.get("H-deaf", [])[deaf.asked :]:
            deaf.asked += 1
            await server.tell("H-deaf", downlink.id, "REFUSED", "queue is full")
        both = [(await states(world, one.device)) for one in (forgetful, deaf)]
        return both == [["GIVEN_UP"], ["GIVEN_UP"]]

    await world.until(given_up)
    for sensor, reason in (
        (forgetful, "history has 2 of 3 readings, after 3 requests"),
        (deaf, "queue is full, after 3 requests"),
    ):
        (gap,) = await page(world, sensor.device)
        assert (gap["asks"], gap["reason"]) == (3, reason)
        assert len(server.queued[sensor.eui]) == 3


async def test_healing_is_off_by_default(world: World, server: Server) -> None:
    """Healing is off by default, and requires a valid request of the codec."""
    assert await world.admin().done("GET", PATH) == {
        "on": False,
        "hour": 2,
        "day": 10,
        "service": "fetch_history",
    }
    wrong = SCRIPT.replace(", ...u32(value.end_time)", "")
    codec = f"/product/{MODEL}/codec"
    kept = await world.admin().done("PUT", codec, {"script": wrong})
    assert kept["history"]["fault"].startswith("leaves out end_time: 1700000000 to 1700000001")
    assert (await world.admin().done("GET", codec))["history"] == kept["history"]
    refused = await world.admin().ask("PUT", PATH, {"on": True})
    assert refused.status_code == 400
    assert "fetch_history leaves out end_time" in refused.text
    await world.admin().done("PUT", codec, {"script": "function Decode() { return {} }"})
    assert (await world.admin().ask("PUT", PATH, {"on": True})).status_code == 400
    await world.admin().done("PUT", codec, {"script": SCRIPT})
    assert (await world.admin().done("PUT", PATH, {"on": True, "day": 1}))["day"] == 1
    wrong_budget = {"on": True, "hour": 0}
    assert (await world.admin().ask("PUT", PATH, wrong_budget)).status_code == 400


async def test_past_readings_are_limited(world: World, server: Server) -> None:
    """Readings outside the retention, of the future, or too many of a frame are rejected."""
    (sensor,) = await add(server, "H-odd")
    now = now_ms() // 1000
    rows = [(now + 86_400, 1), (now - 90 * 86_400, 2), (now - 60, 3)]
    data = b"".join(struct.pack(">BIB", 32, *row) for row in rows)
    trial = await world.admin().done(
        "POST", f"/product/{MODEL}/codec/test", {"port": 85, "hex": data.hex()}
    )
    assert trial["history"][2] == {"ts": rows[2][0] * 1000, "values": {"temperature": 3}}
    assert "refused" not in trial
    assert (await server.tells.send_frames([sensor.uplink(data)])).refused == []
    sensor.counter += 1
    many = b"\x21" + struct.pack(">I", now - 60)
    assert (await server.tells.send_frames([sensor.uplink(many)])).refused == []

    async def stored() -> bool:
        return len(await page(world, sensor.device, "frames")) == 2

    await world.until(stored)
    second, first = await page(world, sensor.device, "frames")
    assert first["reason"].count("is outside the retention") == 2
    assert second["reason"] == "history: has 300 readings; a frame has at most 255"
    assert await history(world, sensor.device, 0, now_ms()) == [
        (rows[2][0] * 1000, {"temperature": 3})
    ]


async def test_a_counted_request_is_used_up(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash before sending uses up a request, and the next one is for the same gap."""
    monkeypatch.setattr(working, "UNSENT_REQUEST_TIMEOUT_MS", 0)
    issue, died = CommandService.issue, list[int]()

    async def dies_once(self: CommandService, principal: Principal, drafts: Any) -> Any:
        if not died:
            died.append(1)
            raise Unavailable("the process ends")
        return await issue(self, principal, drafts)

    monkeypatch.setattr(CommandService, "issue", dies_once)
    (sensor,) = await add(server, "H-dies")
    await lose([sensor], {2, 3}, readings=6)
    await world.admin().done("PUT", PATH, {"on": True, "hour": 2, "day": 2})

    async def healed() -> bool:
        await sensor.answer()
        return await states(world, sensor.device) == ["HEALED"]

    await world.until(healed)
    heal = await world.database["healing"].find_one({"_id": sensor.device})
    assert len(heal["asks"]) == 2
    assert len(server.queued["H-dies"]) == 1


async def test_gaps_of_an_earlier_owner_are_not_requested(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gaps of earlier owners, counter jumps, and small gaps beyond the limit are not requested."""
    monkeypatch.setattr(working, "LATE_FRAME_WAIT_MS", 10**9)
    monkeypatch.setattr(store, "MAX_TRACKED_GAPS", 2)
    (sensor,) = await add(server, "H-owner")
    times = await lose([sensor], {1, 3, 4, 6, 7, 8}, readings=10)
    sensor.counter = 2_000_000_000
    assert (await server.tells.send_frames([sensor.uplink(b"\x01\x07")])).refused == []
    await world.admin().done("PUT", PATH, {"on": True, "hour": 60, "day": 60})
    gaps, own = world.database["gaps"], {"$gte": history_key(sensor.device, 0, 0)}

    async def kept() -> list[int]:
        rows = gaps.find({"_id": own}, sort=[("_id", 1)])
        return [row["missing"] async for row in rows]

    await world.until(lambda: _are(kept, [2, 3]))
    change = {"$set": {"ownedSince": times[4] * 1000}}
    await world.database["devices"].update_one({"_id": sensor.device}, change)
    monkeypatch.undo()
    await server.asked("H-owner")
    assert [one["missing"] for one in await page(world, sensor.device)] == [3]
    await sensor.answer()
    await world.until(lambda: _are(kept, [3]))
    assert len(server.queued["H-owner"]) == 1


async def _are(found: Callable[[], Awaitable[Any]], wanted: Any) -> bool:
    return bool(await found() == wanted)


async def test_enabling_healing_keeps_a_newer_codec(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enabling healing does not overwrite a newer codec."""
    codec = f"/product/{MODEL}/codec"
    original, newer = CodecService._find_history_request, "function Decode() { return {} }"

    async def change(self: CodecService, *given: Any) -> Any:
        monkeypatch.undo()
        await world.admin().done("PUT", codec, {"script": newer})
        return await original(self, *given)

    monkeypatch.setattr(CodecService, "_find_history_request", change)
    assert (await world.admin().ask("PUT", PATH, {"on": True})).status_code == 409
    assert (await world.admin().done("GET", codec))["scripts"] == {"script": newer}
    assert not (await world.admin().done("GET", PATH))["on"]
