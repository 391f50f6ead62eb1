"""Timers of two replicas on one real store."""

import time

import msgspec

from tests.integration.workflow.conftest import Workflow
from tests.integration.workflow.designs import design
from tests.integration.workflow.triggers.world import (
    FLOWS,
    enabled,
    ended,
    make_due,
    replica,
    runs_of,
    timer,
)

HOUR = 3_600_000


async def test_timers_make_one_run_each_whichever_replica_sees_them(workflow: Workflow, servers):
    """Two replicas watch the same thirty timers, which are due in the same second."""
    async with replica(workflow, servers):
        due, delay = 0, 3
        while time.time() >= due:  # on a busy machine some were enabled too late
            due, delay = int(time.time()) + delay, 4 * delay
            text = design([timer(type="ONCE", executionEpochSecond=due, timezone="Asia/Tokyo")])
            flows = [await enabled(workflow.admin(), text) for _ in range(30)]
        runs = await ended(workflow.core, flows, 30)
    assert {run["flow"] for run in runs} == set(flows)
    assert {run["cause"]["key"] for run in runs} == {f"t-{due * 1000}"}
    expected = {"executionEpochSecond": due, "timezone": "Asia/Tokyo"}
    assert [msgspec.json.decode(run["entered"]) for run in runs] == [expected] * 30
    assert min(run["startedAt"].timestamp() for run in runs) >= due


async def test_after_a_downtime_a_timer_runs_once_and_keeps_its_beat(workflow: Workflow, servers):
    """Hours of missed runs become one; the next one is due in the future, on the same minute."""
    text = design([timer(type="INTERVAL", intervalTimeUnit="MINUTES", intervalTime=10)])
    flow_id = await enabled(workflow.admin(), text)
    timers = workflow.core.clients.mongo.database["timers"]
    known = await timers.find_one({"_id": flow_id})
    missed = {"anchor": known["anchor"] - 5 * HOUR, "due": known["due"] - 5 * HOUR}
    async with replica(workflow, servers):
        await timers.update_one({"_id": flow_id}, {"$set": missed})
        await ended(workflow.core, [flow_id], 1)
        later = await timers.find_one({"_id": flow_id})
        while later["due"] == missed["due"]:
            later = await timers.find_one({"_id": flow_id})
    assert 0 < later["due"] - time.time() * 1000 <= 600_000
    assert (later["due"] - known["anchor"]) % 600_000 == 0
    assert len(await runs_of(workflow.core, [flow_id])) == 1


async def test_a_claim_that_nobody_comes_back_to_is_taken_over(workflow: Workflow):
    """A replica that died between its claim and the run loses nothing."""
    text = design([timer(type="INTERVAL", intervalTimeUnit="MINUTES", intervalTime=10)])
    flow_id = await enabled(workflow.admin(), text)
    until = int(time.time() * 1000) + 1500
    await make_due(workflow.core, flow_id, claim={"by": "dead", "until": until})
    (run,) = await ended(workflow.core, [flow_id], 1)
    assert run["startedAt"].timestamp() * 1000 >= until


async def test_a_timer_that_is_set_anew_waits_for_no_old_claim(workflow: Workflow):
    """A claim of the previous due time does not delay the new one."""
    timers = workflow.core.clients.mongo.database["timers"]
    text = design([timer(type="INTERVAL", intervalTimeUnit="HOURS", intervalTime=1)])
    flow_id = await enabled(workflow.admin(), text)
    later = int(time.time()) + 3600
    claim = {"by": "slow", "until": later * 1000}
    await timers.update_one({"_id": flow_id}, {"$set": {"claim": claim}})
    text = design([timer(type="ONCE", executionEpochSecond=later)])
    body = {"id": str(flow_id), "version": 1, "name": "Flow", "enabled": True}
    await workflow.admin().done("POST", f"{FLOWS}/design", body | {"design_data": text})
    due = await make_due(workflow.core, flow_id)
    (run,) = await ended(workflow.core, [flow_id], 1)
    assert run["key"] == f"t-{due}"


async def test_a_timer_ends_with_its_flow(workflow: Workflow):
    """A disabled, deleted or draft flow has no timer."""
    admin, timers = workflow.admin(), workflow.core.clients.mongo.database["timers"]
    text = design([timer(type="SCHEDULE", rules=[{"hour": 3, "minute": 0}])])
    first, second = [await enabled(admin, text) for _ in range(2)]
    draft = await enabled(admin, text, enabled=False)
    assert sorted(await timers.distinct("_id")) == [first, second]
    await admin.done("GET", f"{FLOWS}/{first}/disable")
    await admin.done("POST", f"{FLOWS}/batch-delete", {"workflow_id_list": [str(second)]})
    assert await timers.distinct("_id") == []
    await admin.done("GET", f"{FLOWS}/{draft}/enable")
    assert await timers.distinct("_id") == [draft]


async def test_a_bad_time_zone_is_refused_with_the_field(workflow: Workflow):
    """400; nothing is saved."""
    text = design([timer(type="SCHEDULE", timezone="Mars/Base", rules=[{"hour": 3, "minute": 0}])])
    body = {"name": "Flow", "design_data": text, "enabled": True}
    refused = await workflow.admin().refused(400, "POST", f"{FLOWS}/design", body)
    assert "timerSettings.timezone" in str(refused)
