"""Whose import goes on next. No I/O."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from services.device.imports.store import Import

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds until an import that could not go on is tried again; the last one for ever."""


class _Failure(NamedTuple):
    """How often an import could not go on before, why, and when it is tried again."""

    times: int
    reason: str
    until: float


class Turns:
    """Tenants take turns: who has waited longest goes on. Times are monotonic seconds.

    Of a tenant that is its oldest import, or the next one while the oldest pauses.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        """Since when tenants wait."""
        self._failures: dict[int, _Failure] = {}

    def next(self, running: Sequence[Import], busy: Collection[str], now: float) -> list[Import]:
        """An import of each tenant that has a turn to get, who waits longest first.

        `running` has the oldest first; tenants that are `busy` have a turn already.
        """
        tenants = {job.tenant for job in running}
        self._since = {one: self._since.get(one, now) for one in tenants}
        ids = {job.id for job in running}
        self._failures = {one: known for one, known in self._failures.items() if one in ids}
        heads: dict[str, Import] = {}
        for job in running:
            failure = self._failures.get(job.id)
            if job.tenant not in busy and (failure is None or failure.until <= now):
                heads.setdefault(job.tenant, job)
        return sorted(heads.values(), key=lambda job: self._since[job.tenant])

    def went(self, job: Import, now: float) -> None:
        """A turn is over in which the import went on."""
        self._since[job.tenant] = now
        self._failures.pop(job.id, None)

    def failed(self, job: Import, now: float, reason: str) -> bool:
        """A turn is over in which it could not: it pauses; whether the reason is a new one."""
        self._since[job.tenant] = now
        before = self._failures.get(job.id)
        times = 0 if before is None else before.times + 1
        pause = PAUSES[min(times, len(PAUSES) - 1)]
        self._failures[job.id] = _Failure(times, reason, now + pause)
        return before is None or before.reason != reason
