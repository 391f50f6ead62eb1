"""Refused log-ins in the audit log: `session.refused`, of accounts that exist.

Names that nobody has are not recorded, because mistyped passwords land in them. Neither a
storm nor the work of recording delays a log-in: a refusal is put into a short queue of its tenant
and recorded later, in turns of tenants, a few for each account and each tenant in an hour; the
rest is only counted.
"""

import logging

from opentelemetry import metrics

from libs.common.identity import Caller
from libs.common.limits import TokenBuckets
from libs.common.scheduling import FairQueue
from services.auth.audit import Subject
from services.auth.changes import Changes

log = logging.getLogger(__name__)

HOUR = 3600.0
OF_ACCOUNT = 6
"""Most refusals of one account that are recorded in an hour."""
OF_TENANT = 120
"""The same of a tenant: less than half a gigabyte in a year of storm."""
WAITING = 256
"""Refusals of a tenant that wait to be recorded; those beyond are not."""
SIZE = 256
"""Bytes that one counts, about."""

_left_out = metrics.get_meter("thingway").create_counter(
    "thingway_refusals_not_recorded", description="Refused log-ins that the audit log lacks"
)


class RefusedLoginRecorder:
    """Records refused log-ins; best effort, a crash loses those that wait."""

    def __init__(self, changes: Changes, buckets: TokenBuckets) -> None:
        self._changes = changes
        self._buckets = buckets
        self._waiting: FairQueue[tuple[Caller, str]] = FairQueue(
            "refused log-ins", items=WAITING, size=WAITING * SIZE
        )

    def record(self, claimed: Caller, reason: str) -> None:
        """Have it recorded that a log-in as `claimed`, who exists, was refused; never waits.

        `reason` is a code: `wrong_password`, `disabled`, `address`.
        """
        if not self._waiting.put(claimed.principal.tenant, (claimed, reason), size=SIZE):
            _left_out.add(1)

    async def run(self) -> None:
        """Record what waits, for ever."""
        while True:
            for _, (claimed, reason) in await self._waiting.take(1, SIZE):
                try:
                    await self._record(claimed, reason)
                except Exception:
                    log.exception("a refused log-in could not be recorded")

    async def _record(self, claimed: Caller, reason: str) -> None:
        if not await self._may(claimed):
            _left_out.add(1)
            return
        subject = Subject("session", claimed.principal.subject, claimed.principal.name)
        await self._changes.record(claimed, "refused", subject, after={"reason": reason})

    async def _may(self, claimed: Caller) -> bool:
        """The account is asked first: what it is refused takes nothing from its tenant."""
        principal = claimed.principal
        for key, most in (
            (f"refused:{principal.kind}:{principal.subject}", OF_ACCOUNT),
            (f"refused:{principal.tenant}", OF_TENANT),
        ):
            granted, _ = await self._buckets.take(key, rate=most / HOUR, burst=most)
            if not granted:
                return False
        return True
