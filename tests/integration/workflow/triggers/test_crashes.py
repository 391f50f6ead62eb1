"""What becomes of runs when a replica dies, pauses, or loses the store at a bad moment."""

import asyncio

import pytest

from libs.common.bus import Outbox
from libs.common.errors import Conflict
from libs.common.store.mongo import StoreUnavailable
from services.workflow.engine.runner import Start
from services.workflow.runs.log import ReplicaLog
from services.workflow.runs.model import Cause, Deployed
from services.workflow.runs.store import RunStore
from tests.integration.workflow.conftest import Workflow
from tests.integration.workflow.designs import HOT, design, edge, node, trigger
from tests.integration.workflow.triggers.world import enabled, ended, replica, runs_of


async def start_of(workflow: Workflow, key: str) -> Start:
    """A flow that sets a property, and why it shall run."""
    workflow.device.has(HOT)
    assign = node("set", "entityAssigner", exchangePayload={HOT: 1})
    text = design([trigger(), assign], edge("start", "set"))
    flow_id = await enabled(workflow.admin(), text)
    flow = await workflow.core.triggers.deployed.find("default", flow_id)
    assert isinstance(flow, Deployed)
    return Start(flow, {}, Cause(kind="EVENT", key=key))


async def test_runs_that_a_replica_leaves_behind_begin_in_another(workflow: Workflow, servers):
    """It recorded them and died before they began."""
    start = await start_of(workflow, "e-1")
    async with replica(workflow, servers) as second:
        assert len((await second.engine.runner.admit([start])).runs) == 1
        assert second.engine.runner.active_run_ids()
    (run,) = await ended(workflow.core, [start.flow.flow_id], 1)
    assert (run["status"], run["tries"], run["replica"]) == (
        "SUCCESS",
        2,
        workflow.core.engine.replicas.own,
    )


async def test_a_run_that_was_recorded_while_the_store_failed_begins_all_the_same(
    workflow: Workflow, monkeypatch
):
    """The event comes again and finds its run recorded, so its replica has to look for it."""
    start = await start_of(workflow, "e-2")
    begin = RunStore.begin

    async def fail(self, runs, own):
        await begin(self, runs, own)
        raise StoreUnavailable("the connection broke after the write")

    monkeypatch.setattr(RunStore, "begin", fail)
    with pytest.raises(StoreUnavailable):
        await workflow.core.engine.runner.admit([start])
    monkeypatch.undo()
    assert await workflow.core.engine.runner.admit([start]) == ([], [])
    (run,) = await runs_of(workflow.core, [start.flow.flow_id])
    assert run["status"] == "RUNNING"
    await workflow.core.engine.pending.look()
    (run,) = await ended(workflow.core, [start.flow.flow_id], 1)
    assert run["status"] == "SUCCESS"


async def test_runs_in_hand_are_not_taken_for_lost(workflow: Workflow):
    """However long they take."""
    start = await start_of(workflow, "e-3")
    run = await workflow.core.engine.runner.begin(start)
    await workflow.core.engine.pending.look()
    (found,) = await runs_of(workflow.core, [start.flow.flow_id])
    assert (found["tries"], found["status"]) == (1, "RUNNING")
    await asyncio.wait_for(workflow.core.engine.runner.execute(run), 20)
    assert not workflow.core.engine.runner.active_run_ids()


async def test_a_replica_that_was_taken_for_dead_does_nothing_a_second_time(workflow: Workflow):
    """Its run belongs to another one now: it may not do what must not be done twice."""
    core = workflow.core
    start = await start_of(workflow, "e-4")
    run = await core.engine.runner.begin(start)
    store = RunStore(core.clients.mongo, Outbox(core.clients.mongo.database, core.clients.bus))
    assert await store.adopt(run, "other", [], restart=True)
    with pytest.raises(Conflict, match="another replica"):
        await ReplicaLog(store, core.engine.replicas.own).seal(run)
    await ReplicaLog(store, "other").seal(run)
    await core.engine.runner.execute(run)
    (found,) = await runs_of(core, [start.flow.flow_id])
    assert (found["status"], found["replica"], found["sealed"]) == ("RUNNING", "other", True)
