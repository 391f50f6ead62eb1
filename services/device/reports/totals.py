"""`/system/ledger`: how many messages were accepted, stored and refused, for the operator."""

from collections.abc import Sequence

import msgspec
from litestar import Router
from litestar.di import NamedDependency

from libs.common.bus import Bus
from libs.common.clock import now_ms
from libs.common.http import Requester
from libs.common.http.console import get
from libs.common.http.guards import super_admins
from libs.common.http.operations import operations_of
from libs.common.identity import Principal
from services.device.reports.ledger import Ledger
from services.device.reports.metrics import read_uplink

OPERATOR = "default"
"""The tenant of whoever runs the platform: the counts are those of all tenants together."""


class LedgerReading(msgspec.Struct, kw_only=True):
    """The ledger at a moment (`at`, ms): `accepted` = `stored` + `rejected` + `waiting`."""

    at: int
    accepted: int
    stored: int
    rejected: int
    waiting: int


class LedgerReader:
    """Reads the ledger and what waits in the streams of `UPLINK`."""

    def __init__(self, bus: Bus, streams: Sequence[str], ledger: Ledger) -> None:
        self._bus = bus
        self._streams = streams
        self._ledger = ledger

    async def read(self, principal: Principal) -> LedgerReading | None:
        """The counts since the platform was set up; None for other tenants."""
        if principal.tenant != OPERATOR:
            return None
        reading = await read_uplink(self._bus, self._streams, self._ledger)
        return LedgerReading(
            at=now_ms(),
            accepted=reading.accepted,
            stored=reading.stored,
            rejected=reading.rejected,
            waiting=reading.waiting,
        )


@get("/ledger", guards=[super_admins])
async def get_ledger(
    principal: Requester, ledger_reader: NamedDependency[LedgerReader]
) -> LedgerReading | None:
    """Every message of a device is counted once: what was accepted is stored, refused or waits.

    Two readings tell the rate. Only the tenant of the operator is told: the counts are those of
    all tenants.
    """
    return await ledger_reader.read(principal)


ROUTER = Router("/system", route_handlers=operations_of(globals()), tags=["System"])
