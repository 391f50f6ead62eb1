"""Flows that are services: their entity, and what a call of it answers."""

import pytest

from libs.common.bus import RpcClient
from libs.common.contracts.flows import CALL_FLOW, CallFlow, FlowInput, FlowOutputs
from libs.common.errors import Conflict, InvalidInput, ThingwayError, UpstreamFailed
from tests.integration.workflow.conftest import Workflow
from tests.integration.workflow.designs import choice, design, edge, node, trigger, when
from tests.integration.workflow.triggers.world import FLOWS, enabled, ended, listener

INPUTS = (("temperature", "DOUBLE"), ("room", "STRING"))


def answering() -> str:
    """A flow that says in which room it is how warm."""
    text = "#{properties.start['room']}: #{properties.start['temperature']}"
    said = node("say", "output", outputVariables={"text": text})
    return design([trigger(*INPUTS), said], edge("start", "say"))


async def call(workflow: Workflow, flow_id: int, **inputs):
    """Call a flow as `device` does."""
    wanted = CallFlow(tenant="default", flow_id=flow_id, inputs=inputs, user_id=7, seconds=10)
    return (await RpcClient(workflow.bus).call(CALL_FLOW, wanted, FlowOutputs, 15)).outputs


async def test_the_service_comes_and_goes_with_the_flow(workflow: Workflow):
    """It exists for a draft, is renamed with the flow, and is deleted with its entry."""
    admin, services = workflow.admin(), workflow.device.services
    flow_id = await enabled(admin, answering(), enabled=False, remark="why")
    made = services[flow_id]
    assert (made.name, made.description, made.tenant) == ("Flow", "why", "default")
    assert made.inputs == [
        FlowInput("temperature", "The temperature", "DOUBLE"),
        FlowInput("room", "The room", "STRING"),
    ]
    await admin.done("PUT", f"{FLOWS}/{flow_id}", {"name": "Other", "remark": ""})
    assert services[flow_id].name == "Other"
    body = {"id": str(flow_id), "version": 1, "name": "Other"}
    other = design([listener("a.device.b.c")])
    await admin.done("POST", f"{FLOWS}/design", body | {"design_data": other})
    assert flow_id not in services
    body["version"] = 2
    await admin.done("POST", f"{FLOWS}/design", body | {"design_data": answering()})
    assert flow_id in services
    await admin.done("POST", f"{FLOWS}/batch-delete", {"workflow_id_list": [str(flow_id)]})
    assert services == {}


async def test_a_call_runs_the_flow_and_answers_its_last_output(workflow: Workflow):
    """The run is recorded with who called."""
    flow_id = await enabled(workflow.admin(), answering())
    assert await call(workflow, flow_id, temperature="21.5", room="hall") == {"text": "hall: 21.5"}
    (run,) = await ended(workflow.core, [flow_id], 1)
    assert (run["cause"]["kind"], run["cause"]["userId"]) == ("SERVICE", 7)


async def test_each_call_is_a_run_of_its_own(workflow: Workflow):
    """Also with the same inputs."""
    flow_id = await enabled(workflow.admin(), answering())
    for _ in range(3):
        await call(workflow, flow_id, temperature=1, room="a")
    await ended(workflow.core, [flow_id], 3)


async def test_a_call_that_cannot_be_says_why(workflow: Workflow):
    """Disabled, of another tenant, with a wrong input, or failing: each has its own error."""
    admin = workflow.admin()
    flow_id = await enabled(admin, answering())
    with pytest.raises(InvalidInput, match="temperature must be DOUBLE"):
        await call(workflow, flow_id, temperature="warm", room="a")
    with pytest.raises(UpstreamFailed, match="has no 'room'"):
        await call(workflow, flow_id, temperature=1)
    wanted = CallFlow(tenant="other", flow_id=flow_id, inputs={}, seconds=1)
    with pytest.raises(Conflict, match="not enabled"):
        await RpcClient(workflow.bus).call(CALL_FLOW, wanted, FlowOutputs)
    await admin.done("GET", f"{FLOWS}/{flow_id}/disable")
    with pytest.raises(Conflict, match="not enabled"):
        await call(workflow, flow_id, temperature=1, room="a")


async def test_a_flow_that_takes_long_goes_on_when_the_caller_has_gone(workflow: Workflow):
    """The error says that the flow continues."""
    key = "direct.device.SN1.alarm"
    workflow.device.has(key)
    slow = node("set", "entityAssigner", exchangePayload={key: 1})
    text = design(
        [trigger(), choice(when("a", "1", "EQ", "1")), slow],
        edge("start", "fork"),
        edge("fork", "set", "a"),
    )
    flow_id = await enabled(workflow.admin(), text)
    wanted = CallFlow(tenant="default", flow_id=flow_id, inputs={}, seconds=0.000001)
    with pytest.raises(ThingwayError, match="it continues") as raised:
        await RpcClient(workflow.bus).call(CALL_FLOW, wanted, FlowOutputs)
    assert raised.value.status == 504
    await ended(workflow.core, [flow_id], 1)
