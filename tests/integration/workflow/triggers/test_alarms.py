"""Flows that raise alarms, and flows that listen to them."""

import json
from uuid import uuid4

import msgspec

from libs.common.bus import OutgoingMessage
from libs.common.bus.subjects import alarm_event
from libs.common.contracts.access import ResourceType
from libs.common.contracts.events import AlarmChanged, DeviceProfile
from libs.common.contracts.flows import ChangeAlarm
from tests.integration.workflow.conftest import AUTHOR, Workflow
from tests.integration.workflow.designs import design, edge, node
from tests.integration.workflow.triggers.world import (
    FLOWS,
    device,
    enabled,
    ended,
    following,
    listener,
    reported,
)


def raised(key: str, hops: int = 0) -> OutgoingMessage:
    """The event of an alarm of a device."""
    body = AlarmChanged(
        event_id=uuid4().hex, created_at=5, tenant="default", change="raised",
        alarm_id=7, rule_id=1,
        device=DeviceProfile(device_id=5, sn="SN", thing_key=key), severity="MAJOR",
        content="too hot", value=31.0, raised_at=4,
    )  # fmt: skip
    headers = {"Thingway-Hops": str(hops)} if hops else {}
    return OutgoingMessage(
        alarm_event("default", 5, "raised"), msgspec.json.encode(body), None, headers
    )


async def test_a_flow_raises_an_alarm_of_a_device(workflow: Workflow):
    """The request has the step's id, so that the alarm is raised once."""
    await following(workflow.core)
    key = device()
    workflow.device.has(f"{key}.t")
    alarm = node(
        "ring", "alarm", entity=f"{key}.t", key="hot", severity="CRITICAL",
        content=f"it has #{{properties.start['{key}.t']}} degrees",
    )  # fmt: skip
    text = design([listener(f"{key}.t"), alarm], edge("start", "ring"))
    flow_id = await enabled(workflow.admin(), text)
    await workflow.bus.publish([reported(key, t=31, hops=2)])
    (run,) = await ended(workflow.core, [flow_id], 1)
    assert workflow.device.alarms == [
        ChangeAlarm(
            tenant="default", flow_id=flow_id, step=f"{run['_id']}.ring", entity=f"{key}.t",
            key="hot", raised=True, severity="CRITICAL", content="it has 31 degrees", hops=3,
        )
    ]  # fmt: skip
    assert run["status"] == "SUCCESS"


async def test_a_design_with_an_incomplete_alarm_is_invalid(workflow: Workflow):
    """So is one with an entity that the author does not see."""
    workflow.device.has("direct.device.X.t")
    for user, fields in (
        (workflow.admin(), {"content": " "}),
        (workflow.user(7, *AUTHOR), {"content": "x"}),
        (workflow.user(7, *AUTHOR), {"content": "x", "entity": "#{properties.start['k']}"}),
    ):
        parameters = {"entity": "direct.device.X.t", "key": "k", **fields}
        text = design(
            [node("start", "trigger"), node("ring", "alarm", **parameters)], edge("start", "ring")
        )
        body = {"name": "Flow", "design_data": text, "enabled": True}
        answer = await user.ask("POST", f"{FLOWS}/design", body)
        assert answer.status_code in (400, 403), answer.text
        assert "ring" in json.dumps(answer.json()) or answer.status_code == 403


async def test_a_flow_listens_to_alarms(workflow: Workflow):
    """They belong to a device, or to an integration that the author sees."""
    await following(workflow.core)
    key = device()
    mine = await enabled(workflow.admin(), design([listener(f"{key}.@alarm")]))
    workflow.grants.give(7, ResourceType.INTEGRATION, "direct")
    every = await enabled(workflow.user(7, *AUTHOR), design([listener("direct.*.@alarm")]))
    await workflow.bus.publish([raised(device()), raised(key)])
    runs = await ended(workflow.core, [mine], 1)
    assert msgspec.json.decode(runs[0]["entered"]) == {
        f"{key}.@alarm": {
            "change": "raised", "alarmId": 7, "ruleId": 1, "severity": "MAJOR",
            "content": "too hot", "value": 31.0, "raisedAt": 4,
        }
    }  # fmt: skip
    assert len(await ended(workflow.core, [every], 2)) == 2
