"""Alarms of a running service: raised, cleared, claimed and searched."""

import asyncio
import csv
import io
from typing import Any

import msgspec
import pytest

from libs.common.bus import EVENTS, OutgoingMessage
from libs.common.bus.subjects import uplink_subject
from libs.common.clock import now_ms
from libs.common.contracts.access import ResourceType
from libs.common.errors import InvalidInput
from libs.common.identity.functions import Function
from services.device.alarms.evaluator import CONSUMER_NAME
from services.device.alarms.model import EventCondition, Rule
from services.device.alarms.rules import RuleStore
from tests.console import User
from tests.integration.device.values.world import World
from tests.limits import limits_of

HOT = {
    "type": "VALUE",
    "property": "heat",
    "comparison": "GT",
    "threshold": 200,
    "hysteresis": 10,
}


async def report(world: World, sn: str, *values: Any, ts: int | None = None) -> int:
    """Report values of `heat`, one ms apart; return the time of the first."""
    first = now_ms() if ts is None else ts
    bodies = [
        {"ts": first + at, "properties": value if isinstance(value, dict) else {"heat": value}}
        for at, value in enumerate(values)
    ]
    await say(world, sn, "report", bodies)
    return first


async def say(world: World, sn: str, channel: str, bodies: list[Any]) -> None:
    await world.clients.bus.publish(
        [OutgoingMessage(uplink_subject(sn, channel), msgspec.json.encode(body)) for body in bodies]
    )


async def add_rule(user: User, name: str, condition: dict[str, Any], **more: Any) -> str:
    body = {"name": name, "severity": "MAJOR", "condition": condition, **more}
    return str((await user.done("POST", "/alarm-rules", body))["id"])


async def search(user: User, **asked: Any) -> tuple[list[dict[str, Any]], int]:
    """Return the alarms of a search, oldest first, and their number."""
    body = {"page_size": 1000, "page_number": 1, "sorts": [{"property": "id"}], **asked}
    page = await user.done("POST", "/alarms/search", body)
    return page["content"], page["total"]


async def found(user: User, **asked: Any) -> list[dict[str, Any]]:
    """Return the alarms of a search once they are stable."""
    rows, total = await search(user, **asked)
    assert total == len(rows)
    return rows


async def until(user: User, count: int, **asked: Any) -> list[dict[str, Any]]:
    """Return the alarms of a search once there are this many."""
    async with asyncio.timeout(30):
        while True:
            rows, total = await search(user, **asked)
            if len(rows) == total == count:
                return rows
            await asyncio.sleep(0.05)


async def settled(world: World) -> None:
    """Wait until every report is stored and evaluated."""
    async with asyncio.timeout(30):
        while (await world.clients.bus.js.stream_info("UPLINK")).state.messages:
            await asyncio.sleep(0.02)
        while True:
            info = await world.clients.bus.js.consumer_info(EVENTS, CONSUMER_NAME)
            if not (info.num_pending or info.num_ack_pending):
                return
            await asyncio.sleep(0.02)


async def said(world: World, device: int) -> list[dict[str, Any]]:
    """Return the published events of a device's alarms."""
    await settled(world)
    info = await world.clients.bus.js.stream_info(EVENTS)
    bodies = []
    for sequence in range(info.state.first_seq, info.state.last_seq + 1):
        message = await world.clients.bus.js.get_msg(EVENTS, sequence)
        if str(message.subject).startswith(f"event.default.alarm.{device}."):
            bodies.append(msgspec.json.decode(message.data or b""))
    return bodies


async def test_an_alarm_is_raised_once_and_clears_itself(world: World):
    """Each device of the product has its own alarm, and each change has one event."""
    admin, device = world.admin(), await world.add_direct("A1", "OVEN")
    other = await world.add_direct("A1-b", "OVEN")
    rule = await add_rule(admin, "A1 hot", HOT, product="OVEN")
    first = await report(world, "A1", 100, 210, 250, 195, 201)
    (alarm,) = await until(admin, 1, keyword="a1 HOT")
    assert alarm == {
        "id": alarm["id"],
        "alarm_status": True,
        "alarm_time": first + 1,
        "alarm_content": "A1 hot",
        "device_id": str(device),
        "device_name": "device A1",
        "severity": "MAJOR",
        "rule_id": rule,
        "open": True,
        "value": 210.0,
    }
    await report(world, "A1", 190, ts=first + 10)
    await until(admin, 1, rule_id=rule, open=False)
    await report(world, "A1-b", 300)
    (second,) = await until(admin, 1, rule_id=rule, open=True)
    assert second["device_id"] == str(other)
    (cleared,) = await found(admin, device_ids=[str(device)])
    assert (cleared["cleared_time"], cleared["cleared_by"]) == (first + 10, "RULE")
    events = await said(world, device)
    assert [(event["change"], event["alarmId"]) for event in events] == [
        ("raised", int(alarm["id"])),
        ("cleared", int(alarm["id"])),
    ]
    assert events[0]["device"]["sn"] == "A1"
    await admin.done("DELETE", f"/alarm-rules/{rule}")
    await until(admin, 0, rule_id=rule, open=True)


async def test_late_and_repeated_requests_change_nothing(world: World):
    """Repeated and late evaluation requests change nothing."""
    admin, device = world.admin(), await world.add_direct("A2", "OVEN")
    await add_rule(admin, "A2 hot", HOT, device_id=device)
    await report(world, "A2", *([300, 100] * 20))
    rows = await until(admin, 20, keyword="A2 hot", open=False)
    await settled(world)
    info = await world.clients.bus.js.stream_info(EVENTS)
    again = []
    for sequence in range(info.state.last_seq, info.state.first_seq - 1, -1):
        message = await world.clients.bus.js.get_msg(EVENTS, sequence)
        if str(message.subject) == f"event.default.look.{device}":
            again.append(OutgoingMessage(str(message.subject), message.data or b""))
    assert again
    await world.clients.bus.publish(again)
    await settled(world)
    assert await found(admin, keyword="A2 hot") == rows
    times = [(row["alarm_time"], row["cleared_time"]) for row in rows]
    assert times == [(rows[0]["alarm_time"] + at, rows[0]["alarm_time"] + at + 1)
                     for at in range(0, 40, 2)]  # fmt: skip


async def test_devices_without_history_have_alarms(world: World):
    """Without history an alarm depends on requested readings alone."""
    admin, device = world.admin(), await world.add_direct("A3", "OVEN")
    await world.database["devices"].update_one({"_id": device}, {"$set": {"dataStorage": False}})
    world.foundation.things.directory.remove_from_cache(device)
    await add_rule(admin, "A3 open", {
        "type": "VALUE", "property": "door.open", "comparison": "EQ", "threshold": True,
    }, device_id=device)  # fmt: skip
    await report(world, "A3", {"door": {"open": True}}, {"door": {"open": False}})
    await until(admin, 1, keyword="A3 open", open=False)


async def test_a_duration_ends_without_another_report(world: World):
    """A duration ends without another report."""
    admin, device = world.admin(), await world.add_direct("A4", "OVEN")
    await add_rule(admin, "A4 long", {**HOT, "seconds": 5}, device_id=device)
    first = await report(world, "A4", 300, ts=now_ms() - 4000)
    (alarm,) = await until(admin, 1, keyword="A4 long")
    assert (alarm["alarm_time"], alarm["value"]) == (first + 5000, 300.0)


async def test_a_reading_that_arrives_late_interrupts_a_duration(world: World):
    """The alarm is cleared and stays in the list."""
    admin, device = world.admin(), await world.add_direct("A4-b", "OVEN")
    await add_rule(admin, "A4 buffer", {**HOT, "seconds": 2}, device_id=device)
    first = await report(world, "A4-b", 300)
    await until(admin, 1, keyword="A4 buffer", open=True)
    await report(world, "A4-b", 195, ts=first + 1000)
    (alarm,) = await until(admin, 1, keyword="A4 buffer", open=False)
    assert alarm["alarm_time"] == alarm["cleared_time"] == first + 2000


async def test_a_silence_is_raised_and_cleared(world: World):
    """A silence is raised, also for a device without reports, and cleared by a report.

    Only the arrival of a report counts, not its own time.
    """
    admin, device = world.admin(), await world.add_direct("A5", "OVEN")
    await report(world, "A5", 1)
    await settled(world)
    first = now_ms() - 60_000
    await world.database["latest"].update_one({"_id": device}, {"$set": {"a": first}})
    rule = await add_rule(admin, "A5 silent", {"type": "SILENCE", "seconds": 30}, device_id=device)
    (alarm,) = await until(admin, 1, keyword="A5 silent")
    assert alarm["alarm_time"] > first + 30_000
    await report(world, "A5", 1, ts=now_ms() - 3_600_000)
    await until(admin, 1, keyword="A5 silent", open=False)
    state = await world.database["alarm_states"].find_one({"rule": int(rule)})
    assert state["status"] == "NORMAL"
    never = await world.add_direct("A5-b", "OVEN")
    await add_rule(admin, "A5 never", {"type": "SILENCE", "seconds": 10}, device_id=never)
    await until(admin, 1, keyword="A5 never")


async def test_new_devices_are_watched_for_silence(world: World):
    """A device that joins a product is watched by its rules."""
    admin = world.admin()
    await world.put_product("KILN", {"version": "v1.0", "properties": []})
    rule = await add_rule(admin, "A6", {"type": "SILENCE", "seconds": 1000}, product="KILN")
    device = await world.add_direct("A6", "KILN")
    async with asyncio.timeout(30):
        while not await world.database["alarm_states"].find_one(
            {"rule": int(rule), "device": device, "due": {"$gt": now_ms()}}
        ):
            await asyncio.sleep(0.05)


async def test_events_of_the_tsl(world: World):
    """One event raises and another clears; after a manual clear the next event raises again."""
    admin, device = world.admin(), await world.add_direct("A7", "OVEN")
    smoke = {"type": "EVENT", "event": "smoke", "ended_by": "clear"}
    await add_rule(admin, "A7 smoke", smoke, device_id=device)
    ts = now_ms()
    await say(world, "A7", "event", [
        {"ts": ts + at, "eventId": event, "outputs": {}}
        for at, event in enumerate(("smoke", "smoke", "clear", "smoke"))
    ])  # fmt: skip
    first, second = await until(admin, 2, keyword="A7 smoke")
    assert (first["open"], second["open"], second["value"]) == (False, True, "smoke")
    body = {"alarm_ids": [second["id"]], "note": "toast"}
    await admin.done("POST", "/alarms/clear", body)
    (_, second) = await found(admin, keyword="A7 smoke")
    assert (second["open"], second["cleared_by"], second["note"]) == (False, "1", "toast")
    await say(world, "A7", "event", [{"ts": ts + 10, "eventId": "smoke", "outputs": {}}])
    await until(admin, 3, keyword="A7 smoke")


async def test_a_manual_clear_lasts_until_the_value_was_back(world: World):
    """The rule raises the next alarm only after the value was back."""
    admin, device = world.admin(), await world.add_direct("A8", "OVEN")
    await add_rule(admin, "A8 hot", HOT, device_id=device)
    first = await report(world, "A8", 300)
    (alarm,) = await until(admin, 1, keyword="A8 hot")
    await admin.done("POST", "/alarms/clear", {"alarm_ids": [alarm["id"]]})
    await report(world, "A8", 310, ts=first + 10)
    await settled(world)
    assert [row["open"] for row in await found(admin, keyword="A8 hot")] == [False]
    await report(world, "A8", 100, 300, ts=first + 20)
    await until(admin, 1, keyword="A8 hot", open=True)
    assert [one["change"] for one in await said(world, device)] == ["raised", "cleared", "raised"]


async def test_alarms_are_claimed(world: World):
    """All alarms of a device are claimed with user, time and note; claimed ones stay unchanged."""
    admin, device = world.admin(), await world.add_direct("A9", "OVEN")
    await add_rule(admin, "A9 hot", HOT, device_id=device)
    await report(world, "A9", 300, 100, 300)
    first, second = await until(admin, 2, keyword="A9 hot")
    await admin.done("POST", "/alarms/claim", {"alarm_ids": [first["id"]], "note": "mine"})
    world.grants.give(7, ResourceType.DEVICE, device)
    await world.user(7).done("POST", "/alarms/claim", {"device_id": str(device)})
    first, second = await found(admin, device_ids=[device], alarm_status=[False])
    assert (first["claimed_by"], first["note"]) == ("1", "mine")
    assert (second["claimed_by"], "note" in second) == ("7", False)
    assert await found(admin, device_ids=[device], alarm_status=[True]) == []
    numbers = await admin.done("POST", "/alarms/count", {"device_ids": [str(device)]})
    assert numbers == {"total": 2, "open": 1, "unclaimed": 0, "open_by_severity": {"MAJOR": 1}}
    assert [one["change"] for one in await said(world, device)][-2:] == ["claimed", "claimed"]


async def test_a_user_sees_alarms_of_granted_devices(world: World):
    """Alarms of other devices are neither shown, claimed, cleared nor counted."""
    admin = world.admin()
    mine, grouped = await world.add_direct("A10", "OVEN"), await world.add_direct("A10-b", "OVEN")
    hidden = await world.add_direct("A10-c", "OVEN")
    rule = await add_rule(admin, "A10 hot", HOT, product="OVEN")
    for sn in ("A10", "A10-b", "A10-c"):
        await report(world, sn, 300)
    rows = await until(admin, 3, keyword="A10 hot")
    group = (await admin.done("POST", "/device-group", {"name": "A10"}))["id"]
    moving = {"group_id": group, "device_id_list": [str(grouped)]}
    await admin.done("POST", "/device/move-to-group", moving)
    world.grants.give(7, ResourceType.DEVICE, mine)
    world.grants.give(7, ResourceType.DEVICE_GROUP, group)
    user = world.user(7)
    assert {row["device_id"] for row in await found(user)} == {str(mine), str(grouped)}
    assert (await user.done("POST", "/alarms/count", {}))["total"] == 2
    ids = {"alarm_ids": [row["id"] for row in rows]}
    await user.done("POST", "/alarms/claim", ids)
    await user.done("POST", "/alarms/clear", ids)
    left = await found(admin, keyword="A10 hot", open=True)
    assert [(row["device_id"], row["alarm_status"]) for row in left] == [(str(hidden), True)]
    claim = {"device_id": str(hidden)}
    await user.refused(404, "POST", "/alarms/claim", claim, field="device_id")
    assert await found(world.user(8)) == []
    body = {"name": "x", "severity": "INFO", "condition": HOT}
    await user.refused(403, "POST", "/alarm-rules", {**body, "product": "OVEN"}, field="product")
    hid = {**body, "device_id": str(hidden)}
    await user.refused(404, "POST", "/alarm-rules", hid, field="device_id")
    await user.refused(404, "GET", f"/alarm-rules/{rule}")
    own = await add_rule(user, "A10 own", HOT, device_id=mine)
    page = await user.done("POST", "/alarm-rules/search", {})
    assert [entry["id"] for entry in page["content"]] == [own]
    await admin.done("DELETE", f"/alarm-rules/{rule}")


async def test_another_tenant_sees_nothing(world: World):
    """Another tenant sees no alarms and rules, and its rules apply to its own devices."""
    admin, device = world.admin(), await world.add_direct("A11", "OVEN")
    rule = await add_rule(admin, "A11 hot", HOT, device_id=device)
    await report(world, "A11", 300)
    (alarm,) = await until(admin, 1, keyword="A11 hot")
    other = world.admin("other")
    assert await found(other) == []
    assert (await other.done("POST", "/alarm-rules/search", {}))["total"] == 0
    for method in ("GET", "DELETE"):
        await other.refused(404, method, f"/alarm-rules/{rule}")
    await other.done("POST", "/alarms/clear", {"alarm_ids": [alarm["id"]]})
    assert await found(admin, keyword="A11 hot") == [alarm]
    body = {"name": "x", "severity": "INFO", "condition": HOT, "device_id": str(device)}
    await other.refused(404, "POST", "/alarm-rules", body, field="device_id")


async def test_a_changed_condition_ends_alarms(world: World):
    """A new threshold or disabling ends alarms; a new name does not."""
    admin, device = world.admin(), await world.add_direct("A12", "OVEN")
    rule = await add_rule(admin, "A12 hot", HOT, device_id=device)
    await report(world, "A12", 300)
    await until(admin, 1, rule_id=rule, open=True)
    body = {"name": "A12", "severity": "INFO", "condition": HOT, "device_id": device}
    await admin.done("PUT", f"/alarm-rules/{rule}", body)
    shown = await admin.done("GET", f"/alarm-rules/{rule}")
    assert (shown["name"], shown["severity"], shown["enabled"]) == ("A12", "INFO", True)
    hotter = {**body, "condition": {**HOT, "threshold": 250}}
    assert len(await found(admin, rule_id=rule, open=True)) == 1
    await admin.done("PUT", f"/alarm-rules/{rule}", hotter)
    await until(admin, 0, rule_id=rule, open=True)
    await report(world, "A12", 300)
    await until(admin, 1, rule_id=rule, open=True)
    await admin.done("PUT", f"/alarm-rules/{rule}", {**hotter, "enabled": False})
    await until(admin, 0, rule_id=rule, open=True)
    assert await world.database["alarm_states"].count_documents({"rule": int(rule)}) == 0


async def test_a_deleted_device_loses_its_alarms(world: World):
    """A deleted device loses its alarms and rules."""
    admin, device = world.admin(), await world.add_direct("A13", "OVEN")
    await add_rule(admin, "A13 hot", HOT, device_id=device)
    await report(world, "A13", 300)
    await until(admin, 1, keyword="A13 hot")
    await admin.done("POST", "/device/batch-delete", {"device_id_list": [str(device)]})
    await until(admin, 0, keyword="A13 hot")
    async with asyncio.timeout(30):
        while await world.database["alarm_rules"].find_one({"device": device, "ending": False}):
            await asyncio.sleep(0.05)
    assert await world.database["alarm_states"].find_one({"device": device}) is None


async def test_alarms_are_exported(world: World):
    """The CSV has times of the requested zone and no formulas."""
    admin, device = world.admin(), await world.add_direct("A14", "OVEN")
    await add_rule(admin, "=1+1", HOT, device_id=device)
    await report(world, "A14", 300, ts=now_ms() - now_ms() % 1000 - 5000)
    (alarm,) = await until(admin, 1, keyword="=1+1")
    path = f"/alarms/export?device_ids={device}&alarm_status=true"
    answer = await admin.ask("GET", f"{path}&timezone=Asia/Tokyo")
    head, row = list(csv.reader(io.StringIO(answer.text)))
    assert len(head) == len(row)
    assert row[1:5] == ["MAJOR", "'=1+1", "device A14", "300.0"]
    (other,) = list(csv.reader(io.StringIO((await admin.ask("GET", path)).text)))[1:]
    assert other[0] != row[0]
    assert answer.headers["content-type"].startswith("text/csv")
    await admin.refused(400, "GET", f"{path}&timezone=Nowhere", field="timezone")
    for matching, different in (
        ("open=true", "open=false"),
        ("severity=INFO&severity=MAJOR", "severity=INFO"),
        (f"rule_id={alarm['rule_id']}", "rule_id=1"),
    ):
        assert len((await admin.ask("GET", f"{path}&{matching}")).text.splitlines()) == 2
        assert len((await admin.ask("GET", f"{path}&{different}")).text.splitlines()) == 1
    await admin.refused(400, "GET", f"{path}&severity=HIGH", field="severity")


@pytest.mark.parametrize(
    ("condition", "field"),
    [
        ({**HOT, "comparison": "EQ"}, "condition.hysteresis"),
        ({**HOT, "threshold": "a"}, "condition.comparison"),
        ({"type": "EVENT", "event": "a", "ended_by": "a"}, "condition.ended_by"),
        ({"type": "SILENCE", "seconds": 1}, "condition.seconds"),
        ({**HOT, "property": "$where"}, "condition.property"),
        ({"type": "OTHER"}, ""),
    ],
)
async def test_an_invalid_rule_is_rejected(world: World, condition: Any, field: str):
    """The error names the invalid field."""
    body = {"name": "x", "severity": "INFO", "condition": condition, "product": "OVEN"}
    await world.admin().refused(400, "POST", "/alarm-rules", body, field=field)


async def test_operations_need_their_function(world: World):
    """Readers of devices and dashboards may read; other operations need `device.edit`."""
    readers = {Function.DASHBOARD_EDIT, Function.DASHBOARD_VIEW, Function.DEVICE_VIEW}
    for path, holders in (
        ("/alarms/search", readers),
        ("/alarms/count", readers),
        ("/alarm-rules/search", readers),
        ("/alarms/claim", {Function.DEVICE_EDIT}),
        ("/alarms/clear", {Function.DEVICE_EDIT}),
        ("/alarm-rules", {Function.DEVICE_EDIT}),
    ):
        for function in Function:
            answer = await world.user(7, function).ask("POST", path, {})
            assert (answer.status_code != 403) == (function in holders), (path, function)


@pytest.mark.parametrize(
    ("limit", "target"),
    [("deviceRules", {"device": 10**12}), ("productRules", {"product": "RULED"})],
)
async def test_concurrent_creators_do_not_exceed_the_rules_of_a_target(
    world: World, limit: str, target: dict[str, Any]
):
    """Concurrent requests create no more rules than the limit; the error names it."""
    rules = RuleStore(
        world.database, limits_of(device_rules=3, product_rules=3), world.clients.wakeups
    )
    query = {**target, "tenant": "ruled", "ending": False}

    async def create() -> None:
        now = now_ms()
        rule = Rule(
            id=await rules.new_id(),
            tenant="ruled",
            name="rule",
            severity="INFO",
            condition=EventCondition(event="smoke"),
            enabled=False,
            created_at=now,
            updated_at=now,
            changed=now,
            **target,
        )
        await rules.insert(rule)

    for _ in range(2):
        await create()
    refused = await asyncio.gather(*(create() for _ in range(6)), return_exceptions=True)

    assert all(error is None or limit in str(error) for error in refused)
    assert await world.database["alarm_rules"].count_documents(query) in (2, 3)
    if await world.database["alarm_rules"].count_documents(query) == 2:
        await create()
    with pytest.raises(InvalidInput, match=limit):
        await create()
