"""Flows that listen to values, on a real bus."""

import asyncio

import msgspec
import pytest

from libs.common.scheduling.turns import IDLE_PERIOD_SECONDS
from tests.integration.workflow.conftest import Workflow
from tests.integration.workflow.designs import design, edge, node
from tests.integration.workflow.triggers.world import (
    FLOWS,
    device,
    enabled,
    ended,
    following,
    listener,
    replica,
    reported,
)


def entered(run) -> dict:
    """Return the output of a run's entry."""
    return msgspec.json.decode(run["entered"])


async def test_an_event_starts_a_run_with_the_listened_values(workflow: Workflow):
    """They match by key or pattern; other values start none."""
    await following(workflow.core)
    key, other = device(), device()
    by_key = await enabled(workflow.admin(), design([listener(f"{key}.t")]))
    by_pattern = await enabled(workflow.admin(), design([listener(f"{key}.wifi*")]))
    events = [
        reported(other, t=1),
        reported(key, humidity=1),
        reported(key, t=21.5, wifi={"ssid": "net"}, mode=1),
    ]
    await workflow.bus.publish(events)
    runs = {run["flow"]: run for run in await ended(workflow.core, [by_key, by_pattern], 2)}
    assert entered(runs[by_key]) == {f"{key}.t": 21.5}
    expected = {f"{key}.wifi": {"ssid": "net"}, f"{key}.wifi.ssid": "net"}
    assert entered(runs[by_pattern]) == expected
    assert {run["status"] for run in runs.values()} == {"SUCCESS"}


async def test_a_value_sets_the_property_of_another_device(workflow: Workflow):
    """The assigner writes with one more hop than the event."""
    await following(workflow.core)
    key, target = device(), f"{device()}.alarm"
    workflow.device.has(target)
    assign = node(
        "set", "entityAssigner", exchangePayload={target: f"#{{properties.start['{key}.t']}}"}
    )
    flow_id = await enabled(
        workflow.admin(), design([listener(f"{key}.t"), assign], edge("start", "set"))
    )
    await workflow.bus.publish([reported(key, t=31, hops=2)])
    await ended(workflow.core, [flow_id], 1)
    (update,) = workflow.device.updates
    assert (update.exchange, update.hops) == ({target: 31}, 3)


async def test_an_event_that_comes_again_makes_no_second_run(workflow: Workflow):
    """A redelivered event starts no run, even in another batch."""
    await following(workflow.core)
    key = device()
    flow_id = await enabled(workflow.admin(), design([listener(f"{key}.t")]))
    again = reported(key, t=1)
    await workflow.bus.publish([again, again])
    await ended(workflow.core, [flow_id], 1)
    await workflow.bus.publish([again, reported(key, t=2), again])
    await ended(workflow.core, [flow_id], 2)


async def test_an_unreadable_event_holds_up_nobody(workflow: Workflow):
    """It is skipped, and other events of the batch are handled."""
    await following(workflow.core)
    key = device()
    flow_id = await enabled(workflow.admin(), design([listener(f"{key}.t")]))
    broken = msgspec.structs.replace(reported(key, t=1), payload=b'{"eventId": 1')
    await workflow.bus.publish([broken, reported(key, t=1)])
    await ended(workflow.core, [flow_id], 1)


async def test_a_disabled_changed_or_deleted_flow_gets_no_more_events(workflow: Workflow):
    """The change applies when the request returns; a changed flow has its new key."""
    await following(workflow.core)
    admin, key = workflow.admin(), device()
    flows = [await enabled(admin, design([listener(f"{key}.t")])) for _ in range(3)]
    disabled, changed, deleted = flows
    await admin.done("GET", f"{FLOWS}/{disabled}/disable")
    body = {"id": str(changed), "version": 1, "name": "Flow", "enabled": True}
    body["design_data"] = design([listener(f"{key}.n")])
    await admin.done("POST", f"{FLOWS}/design", body)
    await admin.done("POST", f"{FLOWS}/batch-delete", {"workflow_id_list": [str(deleted)]})
    await workflow.bus.publish([reported(key, t=1), reported(key, n=1)])
    (run,) = await ended(workflow.core, flows, 1)
    assert (run["flow"], entered(run)) == (changed, {f"{key}.n": 1})


async def test_two_replicas_share_events_and_record_each_once(workflow: Workflow, servers):
    """A flow enabled on one replica runs on the other, too; copies of events change nothing."""
    async with replica(workflow, servers) as second:
        await following(workflow.core, second)
        key = device()
        flow_id = await enabled(workflow.admin(), design([listener(f"{key}.*")]))
        async with asyncio.timeout(30):
            while flow_id not in second.triggers.index.index.list_flow_ids():
                await asyncio.sleep(0.02)
        events = [reported(key, t=number) for number in range(1500)]
        for begin in range(0, 1500, 100):
            await workflow.bus.publish([*events[begin : begin + 100], events[begin]])
        runs = await ended(second, [flow_id], 1500)
        assert sorted(entered(run)[f"{key}.t"] for run in runs) == list(range(1500))
        assert {run["replica"] for run in runs} == {
            workflow.core.engine.replicas.replica,
            second.engine.replicas.replica,
        }


async def test_a_lost_wakeup_does_not_delay_a_flow_until_the_next_query(
    workflow: Workflow, servers, monkeypatch: pytest.MonkeyPatch
):
    """Another replica notices the change by the next message, which arrives within a second."""
    async with replica(workflow, servers) as second:
        await following(workflow.core, second)
        wakeups, lost = second.clients.wakeups, list[bytes]()
        process_counts = wakeups.process_counts

        def lose_first(payload: bytes) -> None:
            (process_counts if lost else lost.append)(payload)

        index = second.triggers.index
        index._wake.clear()
        monkeypatch.setattr(wakeups, "process_counts", lambda _: None)
        flow_id = await enabled(workflow.admin(), design([listener(f"{device()}.*")]))
        assert flow_id not in index.index.list_flow_ids()
        monkeypatch.setattr(wakeups, "process_counts", lose_first)
        async with asyncio.timeout(IDLE_PERIOD_SECONDS / 2):
            while flow_id not in index.index.list_flow_ids():
                await asyncio.sleep(0.02)
        assert lost
