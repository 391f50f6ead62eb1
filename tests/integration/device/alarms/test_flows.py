"""Alarms that flows raise and clear, as `workflow` requests them."""

import msgspec
import pytest

from libs.common.contracts.flows import CHANGE_ALARM, ChangeAlarm, ChangeAlarmAnswer
from libs.common.errors import InvalidInput, NotFound
from services.device.alarms import flow_alarms
from tests.integration.device.alarms.test_alarms import found, said
from tests.integration.device.values.world import World


def asking(sn: str, step: str, **more: object) -> ChangeAlarm:
    return ChangeAlarm(**{
        "tenant": "default", "flow_id": 9, "step": step, "entity": f"direct.device.{sn}.heat",
        "key": "fire", "raised": True, "severity": "CRITICAL", "content": f"{sn} burns", **more,
    })  # fmt: skip


async def change(world: World, wanted: ChangeAlarm) -> ChangeAlarmAnswer:
    answer: ChangeAlarmAnswer = await world.rpc(CHANGE_ALARM, wanted, ChangeAlarmAnswer)
    return answer


async def test_a_flow_raises_and_clears_an_alarm_once(world: World):
    """An open alarm is not raised again, and a repeated step changes nothing."""
    admin, device = world.admin(), await world.add_direct("F1", "OVEN")
    raised = await change(world, asking("F1", "1.a"))
    assert raised.changed
    assert await change(world, asking("F1", "2.a")) == ChangeAlarmAnswer(raised.alarm_id)
    (alarm,) = await found(admin, device_ids=[str(device)])
    assert (alarm["alarm_content"], alarm["severity"], alarm["flow_id"], alarm["open"]) == (
        "F1 burns", "CRITICAL", "9", True,
    )  # fmt: skip
    assert "rule_id" not in alarm
    over = asking("F1", "3.a", raised=False)
    assert await change(world, over) == ChangeAlarmAnswer(raised.alarm_id, changed=True)
    again = await change(world, asking("F1", "4.a"))
    assert again.changed
    assert await change(world, over) == ChangeAlarmAnswer(raised.alarm_id, changed=True)
    assert await change(world, asking("F1", "1.a")) == raised
    events = await said(world, device)
    assert [(event["change"], event["alarmId"]) for event in events] == [
        ("raised", raised.alarm_id),
        ("cleared", raised.alarm_id),
        ("raised", again.alarm_id),
    ]
    assert events[1]["clearedBy"] == "FLOW"


async def test_users_claim_and_clear_alarms_of_flows(world: World):
    """After a manual clear the next step raises a new alarm."""
    admin, device = world.admin(), await world.add_direct("F2", "OVEN")
    raised = await change(world, asking("F2", "10.a"))
    ids = {"alarm_ids": [str(raised.alarm_id)]}
    await admin.done("POST", "/alarms/claim", ids)
    await admin.done("POST", "/alarms/clear", ids)
    (alarm,) = await found(admin, device_ids=[str(device)])
    assert (alarm["open"], alarm["claimed_by"], alarm["cleared_by"]) == (False, "1", "1")
    assert (await change(world, asking("F2", "11.a"))).changed


async def test_an_invalid_request_of_a_flow_is_rejected(world: World):
    """Unknown entities, entities without a device, and invalid keys are rejected."""
    await world.add_direct("F3", "OVEN")
    for wanted, error in (
        (asking("F3", "20.a", entity="direct.device.nobody.heat"), NotFound),
        (asking("F3", "20.a", tenant="other"), NotFound),
        (asking("F3", "20.a", key=""), InvalidInput),
        (asking("F3", "20.a", content="x" * 256), InvalidInput),
    ):
        with pytest.raises(error):
            await change(world, wanted)
    judged = asking("F3", "20.a", dry_run=True)
    assert await change(world, judged) == ChangeAlarmAnswer()
    assert (await change(world, msgspec.structs.replace(judged, dry_run=False))).changed


async def test_open_alarms_of_flows_are_limited(world: World, monkeypatch: pytest.MonkeyPatch):
    """Another alarm is rejected at the limit."""
    monkeypatch.setattr(flow_alarms, "MAX_FLOW_ALARMS", 2)
    await world.add_direct("F4", "OVEN")
    for number in range(2):
        await change(world, asking("F4", f"30.{number}", key=f"k{number}"))
    with pytest.raises(InvalidInput):
        await change(world, asking("F4", "30.2", key="k2"))
    await change(world, asking("F4", "31.0", key="k0", raised=False))
    assert (await change(world, asking("F4", "31.2", key="k2"))).changed
