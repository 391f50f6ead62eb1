"""Services of flows, as entities that people call."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from uuid import uuid4

import msgspec
import pytest
import pytest_asyncio

from libs.common.bus import RpcServer
from libs.common.contracts.entities import CALL as CALL_SERVICE
from libs.common.contracts.entities import CalledServices, CallServices
from libs.common.contracts.flows import (
    PUT,
    REMOVE,
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
    """Stands for `workflow`: keeps what was called, and answers or fails."""

    called: list[CallFlow] = field(default_factory=list)
    fails: ThingwayError | None = None

    async def call(self, wanted: CallFlow) -> FlowOutputs:
        self.called.append(wanted)
        if self.fails is not None:
            raise self.fails
        return FlowOutputs({"text": "done"})


@pytest_asyncio.fixture
async def flows(world: World) -> AsyncIterator[Flows]:
    """A `workflow` that runs flows."""
    found = Flows()
    rpc = RpcServer(world.clients.bus, "workflow")
    rpc.offer("call_flow", CallFlow, found.call)
    await rpc.start()
    yield found
    await rpc.stop()


def service(**fields) -> PutFlowService:
    """A flow's service with two inputs."""
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
    """Make one."""
    wanted = service(**fields)
    await world.rpc(PUT, wanted, FlowServiceAnswer)
    return wanted


async def shown(world: World, flow_id: int) -> dict[str, dict]:
    """The entities of a flow by key, as consoles list them."""
    body = {"keyword": f"system.integration.{flow_id}", "page_size": 100, "page_number": 1}
    page = await world.admin().done("POST", "/entity/search", body)
    return {row["entity_key"]: row for row in page["content"]}


async def test_the_service_is_an_entity_with_its_inputs_for_children(world: World):
    """Put again it is brought up to date; an input keeps its id, a new one gets a new id."""
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


async def test_a_call_runs_the_flow_and_answers_its_output(world: World, flows: Flows):
    """With the inputs as their types have them, and who called."""
    made = await put(world)
    key = f"system.integration.{made.flow_id}"
    exchange = {f"{key}.heat": "21.5", f"{key}.room": "hall"}
    caller = world.user(9, Function.DASHBOARD_EDIT)
    assert await caller.done("POST", CALL, {"exchange": exchange}) == {"text": "done"}
    (called,) = flows.called
    assert called.inputs == {"heat": 21.5, "room": "hall"}
    assert (called.tenant, called.flow_id, called.user_id) == ("default", made.flow_id, 9)


async def test_a_flow_that_calls_a_flow_says_how_many_led_to_it(world: World, flows: Flows):
    """So that flows that call one another come to an end."""
    made = await put(world, inputs=[])
    key = f"system.integration.{made.flow_id}"
    wanted = CallServices(tenant="default", exchange={key: None}, hops=3)
    answer = await world.rpc(CALL_SERVICE, wanted, CalledServices)
    assert answer.outputs == {"text": "done"}
    (called,) = flows.called
    assert (called.hops, called.user_id, called.inputs) == (3, None, {})


async def test_wrong_inputs_are_refused_before_the_flow_runs(world: World, flows: Flows):
    """One that is missing, and one of another type; each is named."""
    made = await put(world)
    key = f"system.integration.{made.flow_id}"
    exchange = {f"{key}.heat": "warm"}
    refused = await world.admin().refused(400, "POST", CALL, {"exchange": exchange})
    codes = {one["args"]["entity_key"]: one["error_code"] for one in refused["data"]}
    assert codes == {
        f"{key}.heat": "entity_value_not_match_type",
        f"{key}.room": "entity_value_null",
    }
    assert flows.called == []


async def test_what_the_flow_refuses_with_is_what_the_caller_hears(world: World, flows: Flows):
    """409 for one that is disabled; 503 when no workflow service is there."""
    made = await put(world, inputs=[])
    body = {"exchange": {f"system.integration.{made.flow_id}": None}}
    flows.fails = Conflict("flow 5 is not enabled", field="exchange")
    refused = await world.admin().refused(409, "POST", CALL, body)
    assert "not enabled" in str(refused)


async def test_the_service_goes_with_its_flow_and_not_without_it(world: World):
    """People can neither delete it nor give it children; removed twice it stays removed."""
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
        await world.rpc(REMOVE, RemoveFlowService("default", made.flow_id), FlowServiceAnswer)
    assert await shown(world, made.flow_id) == {}
    await world.admin().refused(404, "GET", f"/entity/{rows[key]['entity_id']}/meta")


async def test_an_entity_that_people_made_is_left_alone(world: World):
    """Its identifier is taken: the flow is refused, and removing the flow removes nothing."""
    flow_id = service().flow_id
    entity = {"identifier": str(flow_id), "name": "Mine", "type": "SERVICE", "value_type": "OBJECT"}
    made = await world.admin().done("POST", "/entity", entity)
    with pytest.raises(Conflict, match="already"):
        await put(world, flow_id=flow_id)
    await world.rpc(REMOVE, RemoveFlowService("default", flow_id), FlowServiceAnswer)
    await world.admin().done("GET", f"/entity/{made['id']}/meta")


async def test_flows_of_another_tenant_are_others(world: World, flows: Flows):
    """Who is not of the tenant can neither see nor call the service."""
    made = await put(world, inputs=[])
    body = {"exchange": {f"system.integration.{made.flow_id}": None}}
    await world.admin("other").refused(400, "POST", CALL, body)
    assert flows.called == []
