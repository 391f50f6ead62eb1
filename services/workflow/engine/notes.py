"""Entries of ours in the logs of flows: what no run could say itself."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from libs.common.clock import now_ms
from services.workflow.runs.records import Cause, CauseKind, Run


class RunLog(Protocol):
    """Where runs are recorded."""

    async def begin(self, runs: list[Run]) -> list[Run]:
        """Record runs that begin."""

    async def finish(self, run: Run) -> None:
        """Record how a run ended."""


class Notes:
    """Writes them."""

    def __init__(self, log: RunLog, next_id: Callable[[], Awaitable[int]]) -> None:
        self._log = log
        self._next_id = next_id

    async def write(
        self, kind: CauseKind, tenant: str, flow_id: int, version: int, reason: str
    ) -> None:
        """Log a run that failed for a reason and never was."""
        run_id = await self._next_id()
        entry = Run(
            id=run_id,
            tenant=tenant,
            flow_id=flow_id,
            version=version,
            cause=Cause(kind=kind, key=f"{kind.lower()}-{run_id}"),
            entered=None,
            started_at=now_ms(),
        )
        await self._log.begin([entry])
        entry.status, entry.error = "ERROR", reason
        await self._log.finish(entry)
