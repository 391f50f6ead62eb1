"""Puts on `UPLINK` what things say that are not connected themselves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.bus import Bus, Outgoing
from libs.common.bus.hops import current_hops, hops_header
from libs.common.bus.subjects import up
from libs.common.errors import InvalidInput
from libs.common.telemetry.tracing import trace_header
from services.device.reports.notify import HEADER, StoredWaiter
from services.device.things.model import Thing


@dataclass(frozen=True, slots=True)
class OwnReport:
    """What a thing has to report."""

    thing: Thing
    properties: dict[str, Any]
    hops: int
    """How many flows have led to it."""


class Reporter:
    """Speaks for things; one per process."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def say(
        self, thing: Thing, channel: str, payload: bytes, message_id: str | None = None
    ) -> None:
        """Say it; accepted when this returns. With an id once, as long as UPLINK knows ids."""
        known_as = None if message_id is None else f"{thing.id}-{channel}-{message_id}"
        headers = trace_header() | hops_header(current_hops())
        await self._bus.publish([Outgoing(up(thing.sn, channel), payload, known_as, headers)])

    async def report(self, thing: Thing, properties: dict[str, Any]) -> None:
        """Report properties as of now; they are stored and in force when this returns.

        Raises `InvalidInput` when they are refused, `UpstreamTimeout` when nobody says what
        became of them.
        """
        (refused,) = await self.report_all([OwnReport(thing, properties, current_hops())])
        if refused is not None:
            raise InvalidInput(refused, field="properties")

    async def report_all(self, reports: Sequence[OwnReport]) -> list[str | None]:
        """Report for several things at once; tell of each why it was refused, or None.

        All that is not refused is stored and in force when this returns. Raises
        `UpstreamTimeout` when nobody says what became of some.
        """
        if not reports:
            return []
        trace = trace_header()
        async with StoredWaiter(self._bus, len(reports)) as waiter:
            await self._bus.publish(
                [
                    Outgoing(
                        up(report.thing.sn, "report"),
                        msgspec.json.encode({"properties": report.properties}),
                        headers={
                            **trace,
                            **hops_header(report.hops),
                            HEADER: f"{waiter.subject}.{number}",
                        },
                    )
                    for number, report in enumerate(reports)
                ],
            )
            outcomes = await waiter.wait()
        reasons = {outcome.number: outcome.refused for outcome in outcomes}
        return [reasons.get(number) for number in range(len(reports))]
