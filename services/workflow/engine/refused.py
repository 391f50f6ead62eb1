"""Runs that were given up since too many waited: counted, and told in the logs of their flows."""

import asyncio
import logging
from collections import OrderedDict

from libs.common.limits.metrics import count_limited
from services.workflow.engine.notes import Notes
from services.workflow.runs.records import Deployed

log = logging.getLogger(__name__)

PERIOD = 60.0
"""Seconds for which a flow has one entry, however many runs it has lost."""
KEPT = 10_000
"""Flows that are remembered until then."""


class Refused:
    """Counts them."""

    def __init__(self, notes: Notes, failures: tuple[type[Exception], ...]) -> None:
        """`failures` are those of a store that is away."""
        self._notes = notes
        self._failures = failures
        self._flows: OrderedDict[int, tuple[Deployed, int]] = OrderedDict()

    def note(self, flow: Deployed, limit: str) -> None:
        """A run of a flow was given up because of a limit (`waitingRuns`)."""
        count_limited(limit, flow.tenant)
        _, number = self._flows.pop(flow.flow_id, (flow, 0))
        self._flows[flow.flow_id] = flow, number + 1
        if len(self._flows) > KEPT:
            self._flows.popitem(last=False)

    async def run(self) -> None:
        """Write logs for ever."""
        while True:
            await asyncio.sleep(PERIOD)
            try:
                await self.write()
            except self._failures as error:
                log.warning("runs that were refused are not logged: %s", error)

    async def write(self) -> None:
        """Say in the log of each flow how many of its runs were given up."""
        flows, self._flows = self._flows, OrderedDict()
        for flow, number in flows.values():
            reason = f"{number} runs were refused: too many wait"
            await self._notes.write("LIMIT", flow.tenant, flow.flow_id, flow.version, reason)
