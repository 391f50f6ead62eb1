"""The metrics that the promises need, read when they are asked for.

`stored` and `rejected` come from the ledger, where each message is counted once, in the
transaction that deals with it. A message leaves `UPLINK` only after that, so what was
accepted is what has been dealt with and what still waits there. (The stream's own last
sequence cannot serve: it counts the second copies of MQTT messages too.)
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from libs.common.bus import Bus
from libs.common.errors import Unavailable
from libs.common.scheduling.turns import repeat
from services.device.telemetry.ledger import Ledger
from services.device.telemetry.uplink import PARTITION_BITS, sequence_in

log = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between two readings."""
STUCK = 30.0
"""Seconds without a message stored, while some wait, after which ingest is not ready."""


@dataclass
class Reading:
    """What was read last."""

    accepted: int = 0
    stored: int = 0
    rejected: int = 0
    waiting: int = 0


class UplinkMetrics:
    """Reads stream and ledger in the background; `/metrics` shows the last reading."""

    def __init__(self, bus: Bus, streams: Sequence[str], ledger: Ledger) -> None:
        self._bus = bus
        self._streams = streams
        self._ledger = ledger
        self._last = Reading()
        self._readings = 0
        self._read_at = self._stored_at = self._moved_at = time.monotonic()
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
        meter.create_observable_counter(
            "thingway_uplink_readings",
            [lambda _: [Observation(self._readings)]],
            description="Times that this process has read the counts above",
        )

    def _observer(self, name: str) -> Callable[[CallbackOptions], list[Observation]]:
        def observe(_: CallbackOptions) -> list[Observation]:
            return [Observation(getattr(self._last, name))]

        return observe

    async def run(self) -> None:
        """Read for ever."""
        await repeat(self._read, PERIOD, "metrics of UPLINK")

    async def _read(self) -> None:
        self._take(await self.read())

    def _take(self, reading: Reading) -> None:
        now = self._read_at = time.monotonic()
        self._readings += 1
        if (reading.stored, reading.rejected) != (self._last.stored, self._last.rejected):
            self._stored_at = self._moved_at = now
        if not reading.waiting:
            self._moved_at = now
        self._last = reading

    async def check(self) -> str:
        """Tell what waits and when ingest last dealt with something; all its processes count.

        Raises `Unavailable` when messages wait and none was dealt with for `STUCK` seconds, or
        when nobody knows.
        """
        now, waiting = time.monotonic(), self._last.waiting
        if now - self._read_at > STUCK:
            raise Unavailable(f"what waits is not known since {now - self._read_at:.0f} s")
        if now - self._moved_at > STUCK:
            still = f"none was stored for {now - self._moved_at:.0f} s"
            raise Unavailable(f"{waiting} messages wait, and {still}")
        return f"{waiting} messages wait, the last was stored {now - self._stored_at:.0f} s ago"

    async def read(self) -> Reading:
        """One reading."""
        return await read_uplink(self._bus, self._streams, self._ledger)


async def read_uplink(bus: Bus, streams: Sequence[str], ledger: Ledger) -> Reading:
    """One reading; ledger and stream are read one after the other."""
    states = {name: (await bus.js.stream_info(name)).state for name in streams}
    ledger.waiting = [
        range(sequence_in(name, state.first_seq), sequence_in(name, 2**PARTITION_BITS - 1))
        for name, state in states.items()
    ]
    totals = await ledger.totals()
    waiting = sum(state.messages for state in states.values())
    handled = totals.stored + totals.rejected
    return Reading(handled + waiting, totals.stored, totals.rejected, waiting)
