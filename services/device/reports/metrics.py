"""The metrics that the promises need, read when they are asked for.

`stored` and `rejected` come from the ledger, where each message is counted once, in the
transaction that deals with it. A message leaves `UPLINK` only after that, so what was
accepted is what has been dealt with and what still waits there. (The stream's own last
sequence cannot serve: it counts the second copies of MQTT messages too.)
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from nats.errors import Error as NatsError
from nats.js.errors import APIError
from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from libs.common.bus import UPLINK, Bus
from libs.common.store.mongo import StoreError
from services.device.reports.ledger import Ledger

log = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two readings."""


@dataclass
class Reading:
    """What was read last."""

    accepted: int = 0
    stored: int = 0
    rejected: int = 0
    waiting: int = 0


class UplinkMetrics:
    """Reads stream and ledger in the background; `/metrics` shows the last reading."""

    def __init__(self, bus: Bus, ledger: Ledger) -> None:
        self._bus = bus
        self._ledger = ledger
        self._last = Reading()
        meter = metrics.get_meter("thingway")
        for name, text in (
            ("accepted", "Messages of devices that were accepted"),
            ("stored", "Messages of devices that were stored"),
            ("rejected", "Messages of devices that were refused and are in DEAD"),
        ):
            meter.create_observable_counter(
                f"thingway_uplink_{name}", [self._observer(name)], description=text
            )
        meter.create_observable_gauge(
            "thingway_uplink_waiting",
            [self._observer("waiting")],
            description="Messages of devices that wait to be stored (consumer lag)",
        )

    def _observer(self, name: str) -> Callable[[CallbackOptions], list[Observation]]:
        def observe(_: CallbackOptions) -> list[Observation]:
            return [Observation(getattr(self._last, name))]

        return observe

    async def run(self) -> None:
        """Read for ever."""
        while True:
            try:
                self._last = await self.read()
            except (NatsError, APIError, StoreError, TimeoutError) as error:
                log.warning("metrics of UPLINK: %r", error)
            await asyncio.sleep(PERIOD)

    async def read(self) -> Reading:
        """One reading; ledger and stream are read one after the other."""
        info = await self._bus.js.stream_info(UPLINK)
        totals = await self._ledger.totals()
        waiting = info.state.messages
        handled = totals.stored + totals.rejected
        return Reading(handled + waiting, totals.stored, totals.rejected, waiting)
