"""What becomes of runs when a replica dies, pauses, or loses the store at a bad moment."""

import asyncio
import json
from dataclasses import replace

import pytest

from libs.common.bus import Outbox
from libs.common.clock import now_ms
from libs.common.errors import Conflict
from libs.common.store.mongo import StoreUnavailable
from services.workflow.engine.runner import FlowStart, record_and_execute
from services.workflow.entities import Entities
from services.workflow.runs.log import ReplicaRunLog
from services.workflow.runs.model import Cause, DeployedFlow, Run
from services.workflow.runs.store import RunStore
from services.workflow.triggers import events
from tests.integration.workflow.conftest import Workflow
from tests.integration.workflow.designs import HOT, design, edge, node, trigger
from tests.integration.workflow.triggers.world import (
    device,
    enabled,
    ended,
    following,
    listener,
    replica,
    reported,
    runs_of,
)

HEAT = "system.integration.heat"


async def start_of(workflow: Workflow, key: str, target: str = HOT) -> FlowStart:
    """A flow that sets a property, and why it shall run."""
    workflow.device.has(target)
    assign = node("set", "entityAssigner", exchangePayload={target: 1})
    text = design([trigger(), assign], edge("start", "set"))
    flow_id = await enabled(workflow.admin(), text)
    flow = await workflow.core.triggers.deployed.find("default", flow_id)
    assert isinstance(flow, DeployedFlow)
    return FlowStart(flow, {}, Cause(kind="EVENT", key=key), is_held=True)


async def test_runs_that_a_replica_leaves_behind_begin_in_another(workflow: Workflow, servers):
    """It recorded them and died before they began."""
    start = await start_of(workflow, "e-1")
    async with replica(workflow, servers) as second:
        assert len((await second.engine.runner.record_starts([start])).runs) == 1
        assert second.engine.runner.list_active_run_ids()
    (run,) = await ended(workflow.core, [start.flow.flow_id], 1)
    assert (run["status"], run["tries"], run["replica"]) == (
        "SUCCESS",
        2,
        workflow.core.engine.replicas.replica,
    )


async def test_a_run_that_was_recorded_while_the_store_failed_begins_all_the_same(
    workflow: Workflow, monkeypatch
):
    """The event comes again and finds its run recorded, so its replica has to look for it."""
    start = await start_of(workflow, "e-2")
    begin = RunStore.insert_starts

    async def fail(self, runs, own):
        await begin(self, runs, own)
        raise StoreUnavailable("the connection broke after the write")

    monkeypatch.setattr(RunStore, "insert_starts", fail)
    with pytest.raises(StoreUnavailable):
        await workflow.core.engine.runner.record_starts([start])
    monkeypatch.undo()
    assert await workflow.core.engine.runner.record_starts([start]) == ([], [])
    (run,) = await runs_of(workflow.core, [start.flow.flow_id])
    assert run["status"] == "RUNNING"
    await workflow.core.engine.pending.recover()
    (run,) = await ended(workflow.core, [start.flow.flow_id], 1)
    assert run["status"] == "SUCCESS"


async def test_runs_in_hand_are_not_taken_for_lost(workflow: Workflow):
    """However long they take."""
    start = await start_of(workflow, "e-3")
    run = await workflow.core.engine.runner.record_start(start)
    await workflow.core.engine.pending.recover()
    (found,) = await runs_of(workflow.core, [start.flow.flow_id])
    assert (found["tries"], found["status"]) == (1, "RUNNING")
    await asyncio.wait_for(workflow.core.engine.runner.execute(run), 20)
    assert not workflow.core.engine.runner.list_active_run_ids()


async def test_a_replica_that_was_taken_for_dead_does_nothing_a_second_time(workflow: Workflow):
    """Its run belongs to another one now: it may not do what must not be done twice."""
    core = workflow.core
    start = await start_of(workflow, "e-4")
    run = await core.engine.runner.record_start(start)
    store = RunStore(core.clients.mongo, Outbox(core.clients.mongo.database, core.clients.bus))
    assert await store.take_over(run, "other", [], restart=True)
    with pytest.raises(Conflict, match="another replica"):
        await ReplicaRunLog(store, core.engine.replicas.replica).mark_unrepeatable(run)
    await ReplicaRunLog(store, "other").mark_unrepeatable(run)
    await core.engine.runner.execute(run)
    (found,) = await runs_of(core, [start.flow.flow_id])
    assert (found["status"], found["replica"], found["sealed"]) == ("RUNNING", "other", True)


async def test_a_quick_run_of_a_held_event_is_recorded_at_its_end(workflow: Workflow):
    """Until then its cause has no room for a second run."""
    start = await start_of(workflow, "e-5", HEAT)
    engine = workflow.core.engine.runner
    (task,) = (await record_and_execute(engine, [start])).deferred
    assert await engine.record_starts([start]) == ([], [start])
    assert await runs_of(workflow.core, [start.flow.flow_id]) == []
    await task
    (run,) = await runs_of(workflow.core, [start.flow.flow_id])
    assert (run["status"], run["tries"], len(workflow.device.updates)) == ("SUCCESS", 1, 1)
    assert await engine.record_starts([replace(start, is_held=False)]) == ([], [])


async def test_a_deferred_run_that_another_replica_has_is_dropped(workflow: Workflow):
    """It neither replaces the other run nor publishes an event."""
    start = await start_of(workflow, "e-6", HEAT)
    core = workflow.core
    finished = await workflow.bus.client.subscribe(
        f"event.default.workflow.{start.flow.flow_id}.finished"
    )
    (task,) = (await record_and_execute(core.engine.runner, [start])).deferred
    other = ReplicaRunLog(RunStore(core.clients.mongo, core.clients.outbox), "other")
    own = Run(
        id=77,
        tenant="default",
        flow_id=start.flow.flow_id,
        version=1,
        cause=start.cause,
        entered={},
        started_at=0,
    )
    assert await other.record_unless_deferred([own]) == [own]
    await task
    (found,) = await runs_of(core, [start.flow.flow_id])
    assert (found["_id"], found["status"]) == (77, "RUNNING")
    await other.record_end(own)
    assert json.loads((await finished.next_msg(timeout=10)).data)["runId"] == 77
    assert finished.pending_msgs == 0


async def test_a_deferred_run_that_takes_long_is_recorded(workflow: Workflow, monkeypatch):
    """Its event is acknowledged after that, and its end replaces the record."""
    monkeypatch.setattr(events, "HOLD_EVENT_SECONDS", 0.01)
    key, core = device(), workflow.core
    workflow.device.has(HEAT)
    assign = node("set", "entityAssigner", exchangePayload={HEAT: 1})
    text = design([listener(f"{key}.t"), assign], edge("start", "set"))
    flow_id = await enabled(workflow.admin(), text)
    await following(core)
    slow, update = asyncio.Event(), Entities.update

    async def wait(*arguments, **options):
        await slow.wait()
        return await update(*arguments, **options)

    monkeypatch.setattr(Entities, "update", wait)
    core.triggers.events.handle.__self__._new_events._since = 0
    await workflow.bus.publish([reported(key, f"r-{now_ms():x}-1", t=1)])
    async with asyncio.timeout(20):
        while not (runs := await runs_of(core, [flow_id])):
            await asyncio.sleep(0.02)
        assert runs[0]["status"] == "RUNNING"
        while (await core.clients.bus.js.consumer_info("EVENTS", "workflow")).num_ack_pending:
            await asyncio.sleep(0.02)
    slow.set()
    (run,) = await ended(core, [flow_id], 1)
    assert (run["status"], run["_id"]) == ("SUCCESS", runs[0]["_id"])
