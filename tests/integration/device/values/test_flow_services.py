"""Services of flows, which users call as entities."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from uuid import uuid4

import msgspec
import pytest
import pytest_asyncio

from libs.common.bus import RpcServer
from libs.common.contracts.entities import CALL_SERVICE, CalledServices, CallServices
from libs.common.contracts.flows import (
    PUT_FLOW_SERVICE,
    REMOVE_FLOW_SERVICE,
    CallFlow,
    FlowInput,
    FlowOutputs,
    FlowServiceAnswer,
    PutFlowService,
    RemoveFlowService,
)
from libs.common.errors import Conflict, ThingwayError
from libs.common.identity.functions import Function
from tests.integration.device.values.world import World

CALL = "/entity/service/call"


@dataclass
class Flows:
    """A fake `workflow` that records calls and answers or fails."""

    called: list[CallFlow] = field(default_factory=list)
    fails: ThingwayError | None = None

    async def call(self, wanted: CallFlow) -> FlowOutputs:
        self.called.append(wanted)
        if self.fails is not None:
            raise self.fails
        return FlowOutputs({"text": "done"})


@pytest_asyncio.fixture
async def flows(world: World) -> AsyncIterator[Flows]:
    """Return a `workflow` that runs flows."""
    found = Flows()
    rpc = RpcServer(world.clients.bus, "workflow")
    rpc.offer("call_flow", CallFlow, found.call)
    await rpc.start()
    yield found
    await rpc.stop()


def service(**fields) -> PutFlowService:
    """Return a flow's service with two inputs."""
    inputs = [FlowInput("heat", "Heat", "DOUBLE"), FlowInput("room", "Room", "STRING")]
    wanted = PutFlowService(
        tenant="default",
        flow_id=uuid4().int >> 80,
        name="Warm up",
        description="why",
        inputs=inputs,
    )
    return msgspec.structs.replace(wanted, **fields)


async def put(world: World, **fields) -> PutFlowService:
    """Create or update the service."""
    wanted = service(**fields)
    await world.rpc(PUT_FLOW_SERVICE, wanted, FlowServiceAnswer)
    return wanted


async def shown(world: World, flow_id: int) -> dict[str, dict]:
    """Return the entities of a flow by key, as consoles list them."""
    body = {"keyword": f"system.integration.{flow_id}", "page_size": 100, "page_number": 1}
    page = await world.admin().done("POST", "/entity/search", body)
    return {row["entity_key"]: row for row in page["content"]}


async def test_the_inputs_of_a_service_are_its_children(world: World):
    """An update keeps the ids of inputs, and new inputs get new ids."""
    made = await put(world)
    key = f"system.integration.{made.flow_id}"
    before = await shown(world, made.flow_id)
    assert sorted(before) == [key, f"{key}.heat", f"{key}.room"]
    assert (before[key]["entity_name"], before[key]["entity_type"]) == ("Warm up", "SERVICE")
    assert before[f"{key}.heat"]["entity_value_type"] == "DOUBLE"
    assert {row["entity_access_mod"] for row in before.values()} == {"W"}  # or nobody offers it
    inputs = [FlowInput("mode", "Mode", "LONG"), FlowInput("room", "Where", "STRING")]
    await put(world, flow_id=made.flow_id, name="Cool down", inputs=inputs)
    after = await shown(world, made.flow_id)
    assert sorted(after) == [key, f"{key}.mode", f"{key}.room"]
    assert (after[key]["entity_name"], after[f"{key}.room"]["entity_name"]) == (
        "Cool down",
        "Where",
    )
    ids = {one: row["entity_id"] for one, row in {**before, **after}.items()}
    assert len(set(ids.values())) == 4
    for one in (key, f"{key}.room"):
        assert before[one]["entity_id"] == after[one]["entity_id"]


async def test_a_call_runs_the_flow_and_returns_its_output(world: World, flows: Flows):
    """The flow receives typed inputs and the caller."""
    made = await put(world)
    key = f"system.integration.{made.flow_id}"
    exchange = {f"{key}.heat": "21.5", f"{key}.room": "hall"}
    caller = world.user(9, Function.DASHBOARD_EDIT)
    assert await caller.done("POST", CALL, {"exchange": exchange}) == {"text": "done"}
    (called,) = flows.called
    assert called.inputs == {"heat": 21.5, "room": "hall"}
    assert (called.tenant, called.flow_id, called.user_id) == ("default", made.flow_id, 9)


async def test_a_call_of_a_flow_has_its_hops(world: World, flows: Flows):
    """A call has its hops, so that recursive flows end."""
    made = await put(world, inputs=[])
    key = f"system.integration.{made.flow_id}"
    wanted = CallServices(tenant="default", exchange={key: None}, hops=3)
    answer = await world.rpc(CALL_SERVICE, wanted, CalledServices)
    assert answer.outputs == {"text": "done"}
    (called,) = flows.called
    assert (called.hops, called.user_id, called.inputs) == (3, None, {})


async def test_invalid_inputs_are_rejected_before_the_flow_runs(world: World, flows: Flows):
    """Missing and invalid inputs are named."""
    made = await put(world)
    key = f"system.integration.{made.flow_id}"
    exchange = {f"{key}.heat": "warm"}
    refused = await world.admin().refused(400, "POST", CALL, {"exchange": exchange})
    codes = {entry["args"]["entity_key"]: entry["error_code"] for entry in refused["data"]}
    assert codes == {
        f"{key}.heat": "entity_value_not_match_type",
        f"{key}.room": "entity_value_null",
    }
    assert flows.called == []


async def test_the_caller_gets_the_error_of_the_flow(world: World, flows: Flows):
    """The caller gets the error of the flow, or 503 without a workflow service."""
    made = await put(world, inputs=[])
    body = {"exchange": {f"system.integration.{made.flow_id}": None}}
    flows.fails = Conflict("flow 5 is not enabled", field="exchange")
    refused = await world.admin().refused(409, "POST", CALL, body)
    assert "not enabled" in str(refused)


async def test_only_its_flow_removes_a_service(world: World):
    """Users can neither delete it nor add children; removing it twice is allowed."""
    made = await put(world)
    key = f"system.integration.{made.flow_id}"
    rows = await shown(world, made.flow_id)
    for row in rows.values():
        body = {"entity_ids": [row["entity_id"]]}
        refused = await world.admin().refused(400, "POST", "/entity/delete", body)
        assert str(made.flow_id) in str(refused)
    child = {"identifier": "x", "name": "X", "type": "SERVICE", "value_type": "LONG"}
    child["parent_identifier"] = str(made.flow_id)
    await world.admin().refused(400, "POST", "/entity", child, field="parent_identifier")
    assert (await shown(world, made.flow_id)).keys() == rows.keys()
    for _ in range(2):
        await world.rpc(
            REMOVE_FLOW_SERVICE, RemoveFlowService("default", made.flow_id), FlowServiceAnswer
        )
    assert await shown(world, made.flow_id) == {}
    await world.admin().refused(404, "GET", f"/entity/{rows[key]['entity_id']}/meta")


async def test_an_entity_of_users_is_not_replaced(world: World):
    """A flow is rejected when users have an entity with its identifier."""
    flow_id = service().flow_id
    entity = {"identifier": str(flow_id), "name": "Mine", "type": "SERVICE", "value_type": "OBJECT"}
    made = await world.admin().done("POST", "/entity", entity)
    with pytest.raises(Conflict, match="already"):
        await put(world, flow_id=flow_id)
    await world.rpc(REMOVE_FLOW_SERVICE, RemoveFlowService("default", flow_id), FlowServiceAnswer)
    await world.admin().done("GET", f"/entity/{made['id']}/meta")


async def test_services_of_another_tenant_are_hidden(world: World, flows: Flows):
    """Users of another tenant can neither see nor call the service."""
    made = await put(world, inputs=[])
    body = {"exchange": {f"system.integration.{made.flow_id}": None}}
    await world.admin("other").refused(400, "POST", CALL, body)
    assert flows.called == []
