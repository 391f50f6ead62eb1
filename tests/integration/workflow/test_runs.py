"""Runs: recorded, explained, bounded, interrupted and recovered."""

import asyncio
import json
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import msgspec
import pytest

from libs.common.bus import Outbox
from libs.common.contracts.events import WorkflowFinished
from libs.common.errors import Conflict
from libs.common.identity.functions import Function
from services.workflow.engine.recovery import ReplicaRegistry
from services.workflow.runs.log import MIN_DELETION_AGE, ReplicaRunLog, RunRetention
from services.workflow.runs.model import MAX_HOPS, Cause, DeployedFlow, Run
from services.workflow.runs.store import RunStore
from tests.integration.workflow.designs import HOT, alarm, design, edge, node, trigger

FLOWS = "/workflow/flows"
CALL = node("call", "serviceInvocation", serviceInvocationSetting={"serviceEntity": HOT})


async def enabled(workflow, text=None):
    """A flow that runs, as its trigger has it."""
    user = workflow.admin()
    body = {"name": "Alarm", "design_data": text or alarm(), "enabled": True}
    saved = await user.done("POST", f"{FLOWS}/design", body)
    return DeployedFlow(
        tenant="default",
        flow_id=int(saved["id"]),
        version=saved["version"],
        name="Alarm",
        node_id="start",
        component="trigger",
    )


def cause(key="", hops=0):
    """A cause of its own."""
    return Cause(kind="EVENT", key=key or uuid.uuid4().hex, hops=hops)


async def logged(workflow, flow, **body):
    """The log of a flow."""
    return await workflow.admin().done("POST", f"{FLOWS}/{flow.flow_id}/logs/search", body)


async def test_a_run_is_logged_with_its_trace(workflow):
    """The log has a row for the run, and its detail the trace; the value is written."""
    workflow.device.has(HOT)
    flow = await enabled(workflow)
    run = await workflow.core.engine.runner.run_to_end(flow, {"temperature": 31.5}, cause(hops=2))

    (row,) = await logged(workflow, flow)
    assert (str(run.id), "SUCCESS", 1) == (row["id"], row["status"], row["version"])
    assert run.started_at == row["start_time"]
    detail = await workflow.admin().done("GET", f"{FLOWS}/logs/{run.id}")
    assert [one["node_id"] for one in detail["trace_info"]] == ["start", "fork", "set"]
    assert json.dumps({HOT: 31.5}, separators=(",", ":")) == detail["trace_info"][2]["output"]
    (update,) = workflow.device.updates
    assert (update.tenant, update.exchange, update.hops) == ("default", {HOT: 31.5}, 3)

    workflow.device.has(HOT, write_only=True)  # an import has made it so
    detail = await workflow.admin().done("GET", f"{FLOWS}/logs/{run.id}")
    assert detail["trace_info"][2]["output"] == json.dumps({HOT: "******"}, separators=(",", ":"))


async def test_runs_that_set_custom_entities_at_once_ask_together(workflow):
    """Hundreds of runs are a few questions, and each run has its own answer in its log."""
    heat = "system.integration.heat"
    value = "#{properties.start['temperature']}"
    assign = node("set", "entityAssigner", exchangePayload={heat: value})
    flow = await enabled(workflow, design([trigger(), assign], edge("start", "set")))
    workflow.device.has(heat)
    start = workflow.core.engine.runner.run_to_end
    runs = await asyncio.gather(
        *(start(flow, {"temperature": number}, cause(f"e-{number}")) for number in range(200))
    )
    assert {run.status for run in runs} == {"SUCCESS"}
    expected = [{heat: number} for number in range(200)]
    assert expected == [run.output for run in runs]
    assert sum(workflow.device.asked) == 200
    assert len(workflow.device.asked) < 100


async def test_the_end_of_a_run_is_published(workflow):
    """`event.{tenant}.workflow.{flowId}.finished` contains the result."""
    flow = await enabled(workflow)
    subject = f"event.default.workflow.{flow.flow_id}.finished"
    heard = await workflow.bus.client.subscribe(subject)
    run = await workflow.core.engine.runner.run_to_end(flow, {"temperature": 1}, cause())
    event = msgspec.json.decode((await heard.next_msg(timeout=10)).data, type=WorkflowFinished)
    assert (run.id, flow.flow_id, 1, "SUCCESS") == (
        event.run_id,
        event.flow_id,
        event.version,
        event.status,
    )


async def test_one_cause_makes_one_run(workflow):
    """A repeated cause is rejected by all replicas."""
    flow = await enabled(workflow)
    await workflow.core.engine.runner.run_to_end(flow, {"temperature": 1}, cause("e-1"))
    with pytest.raises(Conflict, match="e-1"):
        await workflow.core.engine.runner.run_to_end(flow, {"temperature": 1}, cause("e-1"))

    other = ReplicaRunLog(
        RunStore(workflow.core.clients.mongo, workflow.core.clients.outbox), "other"
    )
    assert await other.record_unless_deferred([_run(flow, 77, "e-1")]) == []
    assert len(await logged(workflow, flow)) == 1


def _run(flow, run_id, key, **fields):
    return Run(
        id=run_id,
        tenant=flow.tenant,
        flow_id=flow.flow_id,
        version=flow.version,
        cause=cause(key),
        entered={"temperature": 99},
        started_at=1_700_000_000_000,
        **fields,
    )


async def test_an_error_names_its_node_and_its_reason(workflow):
    """The trace has the error of `device`, and the run is an error."""
    workflow.device.refuses = "value is too hot"
    flow = await enabled(workflow)
    run = await workflow.core.engine.runner.run_to_end(flow, {"temperature": 99}, cause())

    assert len(await logged(workflow, flow, status="ERROR")) == 1
    assert await logged(workflow, flow, status="SUCCESS") == []
    detail = await workflow.admin().done("GET", f"{FLOWS}/logs/{run.id}")
    assert tuple(
        detail["trace_info"][-1][name] for name in ("node_id", "status", "error_message")
    ) == ("set", "ERROR", "exchange: value is too hot")
    assert detail["error_message"] == "exchange: value is too hot"


async def test_flows_that_lead_to_one_another_stop(workflow):
    """After eight hops a flow is logged and not run, and the log says why."""
    workflow.device.has(HOT)
    flow = await enabled(workflow)
    run = await workflow.core.engine.runner.run_to_end(
        flow, {"temperature": 99}, cause(hops=MAX_HOPS)
    )

    detail = await workflow.admin().done("GET", f"{FLOWS}/logs/{run.id}")
    assert (detail["status"], detail["trace_info"]) == ("ERROR", [])
    assert "8 flows have started one another" in detail["error_message"]
    assert workflow.device.updates == []


async def test_a_flow_that_only_fails_is_disabled_and_says_so(workflow):
    """After three failures in a row (the test's limit); a success in between forgives."""
    flow = await enabled(workflow)
    engine = workflow.core.engine.runner
    for bad in (True, True, False, True, True, True):
        workflow.device.refuses = "no" if bad else ""
        workflow.device.has(HOT)
        await engine.run_to_end(flow, {"temperature": 99}, cause())

    shown = await workflow.admin().done("GET", f"{FLOWS}/{flow.flow_id}/design")
    assert shown["enabled"] is False
    assert shown["stopped"].startswith("it failed 3 times in a row; latest error: ")
    found = await workflow.admin().done("POST", f"{FLOWS}/search", {})
    assert [entry["stopped"] for entry in found if entry["id"] == shown["id"]] == [shown["stopped"]]
    newest, *others = await logged(workflow, flow)
    assert len(others) == 6
    detail = await workflow.admin().done("GET", f"{FLOWS}/logs/{newest['id']}")
    assert detail["error_message"].startswith("the flow was disabled: it failed 3 times in a row")
    await workflow.admin().ask("GET", f"{FLOWS}/{flow.flow_id}/enable")
    shown = await workflow.admin().done("GET", f"{FLOWS}/{flow.flow_id}/design")
    assert (shown["enabled"], "stopped" in shown) == (True, False)


async def test_a_node_that_takes_too_long_is_ended(workflow):
    """The error contains the limit (three seconds in this test)."""
    flow = await enabled(workflow)
    never = asyncio.Event()

    class Slow:
        async def update(self, *_, **__):
            await never.wait()

    workflow.core.nodes.registry.find("entityAssigner")._entities = Slow()
    run = await workflow.core.engine.runner.run_to_end(flow, {"temperature": 99}, cause())

    assert (run.status, run.error) == ("ERROR", "the node took longer than 3 s")


async def test_secrets_are_masked_and_long_values_cut(workflow):
    """The log never shows what stands under the name of a secret."""
    text = design(
        [trigger(("password", "STRING"), ("text", "STRING")), node("end", "output")],
        edge("start", "end"),
    )
    flow = await enabled(workflow, text)
    entered = {"password": "hunter2", "text": "x" * 100_000}
    run = await workflow.core.engine.runner.run_to_end(flow, entered, cause())

    answer = await workflow.admin().ask("GET", f"{FLOWS}/logs/{run.id}")
    assert "hunter2" not in answer.text
    assert len(answer.text) < 40_000
    shown = json.loads(answer.json()["data"]["trace_info"][0]["output"])
    assert shown["characters"] > 100_000
    assert '"password":"******"' in shown["truncated"]


async def orphaned(workflow, flow, sealed):
    """A run of a replica that died."""
    store = RunStore(
        workflow.core.clients.mongo, Outbox(workflow.core.clients.mongo.database, workflow.bus)
    )
    run = _run(flow, 4242, "e-9")
    assert await store.insert_starts([run], "dead") == [True]
    if sealed:
        await store.mark_unrepeatable([run.id], "dead")
    return run


async def ended(workflow, run_id):
    """The document of a run that has ended."""
    async with asyncio.timeout(20):
        while True:
            runs = workflow.core.clients.mongo.database["runs"]
            found = await runs.find_one({"_id": run_id, "status": {"$ne": "RUNNING"}})
            if found:
                return found
            await asyncio.sleep(0.02)


async def test_an_interrupted_run_begins_anew_when_that_does_no_harm(workflow):
    """Its replica is dead, and nothing was done that must not be done twice."""
    workflow.device.has(HOT)
    flow = await enabled(workflow)
    run = await orphaned(workflow, flow, sealed=False)

    found = await ended(workflow, run.id)
    assert (found["status"], found["tries"]) == ("SUCCESS", 2)
    assert [update.exchange for update in workflow.device.updates] == [{HOT: 99}]


async def test_an_interrupted_run_that_must_not_begin_anew_is_logged_as_such(workflow):
    """It has called a service already."""
    flow = await enabled(workflow, design([trigger(), CALL], edge("start", "call")))
    run = await orphaned(workflow, flow, sealed=True)

    found = await ended(workflow, run.id)
    assert found["status"] == "ERROR"
    assert "interrupted" in found["error"]
    assert workflow.device.calls == []


async def test_a_run_is_sealed_before_an_unrepeatable_step(workflow):
    """The mark is written before the service is called."""
    workflow.device.has(HOT)
    workflow.device.outputs = {"answer": 5}
    flow = await enabled(workflow, design([trigger(), CALL], edge("start", "call")))
    run = await workflow.core.engine.runner.run_to_end(flow, {}, cause())

    found = await workflow.core.clients.mongo.database["runs"].find_one({"_id": run.id})
    assert found["sealed"] is True
    assert (
        run.output,
        [call.exchange for call in workflow.device.calls],
    ) == ({"answer": 5}, [{HOT: {}}])


async def test_runs_of_replicas_that_live_are_left_alone(workflow):
    """A replica that shows that it lives keeps its runs."""
    database = workflow.core.clients.mongo.database
    await ReplicaRegistry(database, "busy").renew_entry()

    assert {"busy", workflow.core.engine.replicas.replica} == set(
        await workflow.core.engine.replicas.list_alive()
    )


async def test_logs_are_kept_within_their_bounds(workflow):
    """Too old and too many go, the newest and the fresh stay."""
    flow = await enabled(workflow)
    for number in range(5):
        await workflow.core.engine.runner.run_to_end(flow, {"temperature": number}, cause())
    rows = [row["id"] for row in await logged(workflow, flow)]
    store = RunStore(workflow.core.clients.mongo, workflow.core.clients.outbox)
    grown = [{flow.flow_id}]
    log = SimpleNamespace(pop_grown_flows=lambda: grown.pop() if grown else set())
    keeps = RunRetention(store, log, days=2, maximum=3)  # type: ignore[arg-type]

    now = datetime.now(UTC)
    await keeps.clean(now)
    assert rows == [row["id"] for row in await logged(workflow, flow)]
    await keeps.clean(now + MIN_DELETION_AGE + timedelta(seconds=1))
    assert rows[:3] == [row["id"] for row in await logged(workflow, flow)]
    await keeps.clean(now + timedelta(days=3))
    assert await logged(workflow, flow) == []


async def test_a_log_is_seen_by_whom_the_flow_is_granted_to(workflow):
    """Others find neither the list nor the detail; unknown ids are 404."""
    flow = await enabled(workflow)
    run = await workflow.core.engine.runner.run_to_end(flow, {"temperature": 1}, cause())
    stranger = workflow.user(9, Function.WORKFLOW_VIEW)

    await stranger.refused(403, "POST", f"{FLOWS}/{flow.flow_id}/logs/search", {})
    await stranger.refused(403, "GET", f"{FLOWS}/logs/{run.id}")
    await workflow.admin().refused(404, "GET", f"{FLOWS}/logs/999999", field="log_id")
    await workflow.admin().refused(404, "POST", f"{FLOWS}/999999/logs/search", {})
    await workflow.admin("elsewhere").refused(404, "GET", f"{FLOWS}/logs/{run.id}")
    await workflow.admin().refused(
        400, "POST", f"{FLOWS}/{flow.flow_id}/logs/search", {"status": "x"}, field="status"
    )
