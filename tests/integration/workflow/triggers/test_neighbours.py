"""A tenant that floods its flows keeps no other one waiting."""

import asyncio
from uuid import uuid4

from services.workflow.engine.queue import QueuePlaces
from services.workflow.engine.runner import FlowStart
from services.workflow.runs.model import Cause, FlowOwner
from tests.integration.workflow.conftest import Workflow
from tests.integration.workflow.designs import design, edge, node
from tests.integration.workflow.triggers.world import (
    FLOWS,
    device,
    enabled,
    ended,
    following,
    listener,
    make_due,
    reported,
    runs_of,
    timer,
)

SPINS = "const until = Date.now() + 500; while (Date.now() < until); return {}"


def code(text: str = "return {}"):
    """A node that computes."""
    return node("code", "code", expression={"language": "js", "expression": text})


async def hook(user, text: str = "return {}") -> tuple[int, str]:
    """A flow that computes when its address is posted to; its id and address."""
    token = uuid4().hex + uuid4().hex
    nodes = [node("start", "httpIn", token=token), code(text)]
    return await enabled(user, design(nodes, edge("start", "code"))), f"/workflow/hooks/{token}"


async def listens(user, key: str, *steps) -> int:
    """A flow that goes on to a step when a value comes."""
    nodes = [listener(f"{key}.t"), *steps]
    return await enabled(user, design(nodes, *(edge("start", step["id"]) for step in steps)))


async def test_a_flood_of_code_that_spins_keeps_nobody_else_waiting(workflow: Workflow):
    """Its hook answers 429 beyond the tenant's share; others' hooks, events and timers run."""
    core, loud, other = workflow.core, workflow.admin("loud"), workflow.admin("other")
    core.engine.queue._free = 40
    await workflow.limit("loud", runs=4)
    await following(core)
    key = device()
    _, flooded = await hook(loud, SPINS)
    hooked, address = await hook(other)
    listening = await listens(other, key, code())
    answers = await asyncio.gather(*(workflow.http.post(flooded) for _ in range(100)))
    assert {answer.status_code for answer in answers} == {200, 429}
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 429)
    assert (
        core.engine.queue.measure_usage("loud")["waitingRuns"] <= 20 + 4
    )  # half, and those that are recorded

    assert (await workflow.http.post(address)).status_code == 200
    await workflow.bus.publish([reported(key, tenant="other", t=1)])
    hourly = timer(type="INTERVAL", intervalTimeUnit="HOURS", intervalTime=1)
    timed = await enabled(other, design([hourly]))
    await make_due(core, timed)
    runs = await ended(core, [hooked, listening, timed], 3)
    assert {run["status"] for run in runs} == {"SUCCESS"}
    assert core.engine.queue.measure_usage("loud")["waitingRuns"] > 0
    await core.engine.runner.drain(0)  # nothing needs the end of the flood


async def test_events_of_a_tenant_without_room_come_again_and_hold_up_nobody(workflow: Workflow):
    """The bus redelivers them later; events of other tenants are handled immediately."""
    core, key = workflow.core, device()
    await following(core)
    await workflow.limit("loud", runs=1, waiting_runs=3)
    flooded = await listens(workflow.admin("loud"), key, code())
    calm = await listens(workflow.admin("other"), key)
    flood = [reported(key, tenant="loud", t=number) for number in range(5)]
    busy, end = QueuePlaces(FlowOwner("loud", 0)), asyncio.Event()
    core.engine.queue.add(busy)
    holding = asyncio.ensure_future(core.engine.queue.run(busy, end.wait))
    await workflow.bus.publish([*flood, reported(key, tenant="other", t=1)])
    await ended(core, [calm], 1)
    assert [run["status"] for run in await runs_of(core, [flooded])] == ["RUNNING"] * 3
    end.set()
    await holding
    core.engine.queue.remove(busy)
    await ended(core, [flooded], 5)


async def test_dropped_runs_are_counted_in_the_log_of_their_flow(workflow: Workflow):
    """One entry has their number."""
    flow_id, _ = await hook(workflow.admin())
    flow = await workflow.core.triggers.deployed.find("default", flow_id)
    for number in range(3):
        cause = Cause(kind="EVENT", key=f"e-{number}")
        workflow.core.engine.runner.count_rejected(FlowStart(flow, {}, cause))
    await workflow.core.engine.rejected_runs.write_counts()
    (row,) = await workflow.admin().done("POST", f"{FLOWS}/{flow_id}/logs/search", {})
    detail = await workflow.admin().done("GET", f"{FLOWS}/logs/{row['id']}")
    assert detail["error_message"] == "3 runs were rejected because too many wait"
    await workflow.core.engine.rejected_runs.write_counts()
    assert len(await runs_of(workflow.core, [flow_id])) == 1
