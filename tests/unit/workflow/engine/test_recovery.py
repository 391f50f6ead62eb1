"""Runs that were left behind, while one tenant has no room."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from services.workflow.engine.recovery import (
    RUNS_PER_BATCH,
    OrphanedRunRecovery,
    PendingRunRecovery,
)
from services.workflow.runs.model import Cause, Run


def run(run_id: int, tenant: str) -> Run:
    """A run that is recorded."""
    cause = Cause(kind="EVENT", key=str(run_id))
    return Run(
        id=run_id, tenant=tenant, flow_id=1, version=1, cause=cause, entered={}, started_at=0
    )


@dataclass
class World:
    """Store, replicas and engine; `full` is the tenant that has no room."""

    runs: list[Run]
    full: str = "busy"
    replica: str = "me"
    begun: list[int] = field(default_factory=list)

    async def list_alive(self):
        return [self.replica]

    async def list_orphans(self, alive, most, without):
        return [one for one in self.runs if one.tenant not in without][:most]

    async def list_pending(self, replica, held, most, without):
        return await self.list_orphans([replica], most, without)

    async def take_over(self, run, replica, alive, *, restart):
        self.runs.remove(run)
        return True

    def has_room_for_run(self, run):
        return run.tenant != self.full

    def list_active_run_ids(self):
        return frozenset(self.begun)

    def execute(self, run):
        self.begun.append(run.id)


@pytest.mark.parametrize("kind", [OrphanedRunRecovery, PendingRunRecovery])
async def test_runs_of_a_tenant_without_room_stay_and_keep_nobody_elses_waiting(kind):
    """Any number of them may be ahead of other tenants' runs."""
    busy = [run(number, "busy") for number in range(2 * RUNS_PER_BATCH)]
    world = World([*busy, run(9000, "calm"), run(9001, "other")])
    more = (world,) if kind is OrphanedRunRecovery else ()
    await kind(world, world, world, *more).recover()
    assert world.begun == [9000, 9001]
    assert world.runs == busy


class UnchangedReplicas:
    """Replicas, and the store of runs, which has none."""

    def __init__(self) -> None:
        self.alive = ["first", "second"]
        self.reads = 0

    async def list_alive(self) -> list[str]:
        return list(self.alive)

    async def list_orphans(self, *_: Any) -> list[Any]:
        self.reads += 1
        return []


async def test_runs_are_read_when_replicas_have_changed() -> None:
    """While the same replicas live, runs are read only every `REST` seconds."""
    fake: Any = UnchangedReplicas()
    recovery = OrphanedRunRecovery(fake, fake, fake, fake)
    for expected in (1, 1):
        await recovery.recover()
        assert fake.reads == expected
    fake.alive.remove("second")
    await recovery.recover()
    assert fake.reads == 2
    recovery._last_complete = (fake.alive, 0.0)
    await recovery.recover()
    assert fake.reads == 3
