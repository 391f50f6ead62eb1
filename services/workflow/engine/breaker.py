"""The circuit breaker: a flow that only fails is disabled, and its log says so."""

import logging
from collections import OrderedDict
from typing import Protocol

from services.workflow.engine.notes import Notes
from services.workflow.runs.records import Run

log = logging.getLogger(__name__)

KEPT = 10_000
"""Flows whose failures are counted."""


class Flows(Protocol):
    """Switches flows off."""

    async def cut_off(self, tenant: str, flow_id: int, version: int) -> bool:
        """Disable a flow that still runs this version; False when it does not."""


class CircuitBreaker:
    """Counts failures, one after the other, of the flows that run in this process.

    The counts are in memory: each replica sees its share of a flow's runs, and a flow that
    only fails does so in every replica.
    """

    def __init__(self, flows: Flows, notes: Notes, most: int) -> None:
        self._flows = flows
        self._notes = notes
        self._most = most
        self._failures: OrderedDict[tuple[int, int], int] = OrderedDict()

    async def note(self, run: Run) -> None:
        """Count a failure, or forget those before a success."""
        key = (run.flow_id, run.version)
        if run.status == "SUCCESS":
            self._failures.pop(key, None)
            return
        count = self._failures.get(key, 0) + 1
        self._failures[key] = count
        self._failures.move_to_end(key)
        if len(self._failures) > KEPT:
            self._failures.popitem(last=False)
        if count >= self._most:
            del self._failures[key]
            await self._cut(run, count)

    async def _cut(self, run: Run, count: int) -> None:
        if not await self._flows.cut_off(run.tenant, run.flow_id, run.version):
            return
        reason = f"the flow was disabled: it failed {count} times in a row, at last: {run.error}"
        log.warning("flow %d: %s", run.flow_id, reason)
        await self._notes.write("BREAKER", run.tenant, run.flow_id, run.version, reason)
