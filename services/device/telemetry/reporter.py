"""Reports of services on behalf of things, and notifications of storage.

A sender that waits for storage (`?wait=stored`, a flow) puts a subject into the header of each
message, optionally with a number. When a batch is stored, ingest answers on the subject, with up to
`OUTCOMES_PER_ANSWER` outcomes of messages in one answer. It answers only subjects in the format of
`StorageWaiter`, because a device may set headers.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self
from uuid import uuid4

import msgspec
from nats.aio.msg import Msg

from libs.common.bus import Bus, OutgoingMessage
from libs.common.bus.hops import current_hops, hops_header
from libs.common.bus.subjects import uplink_subject
from libs.common.errors import InvalidInput, UpstreamTimeout
from libs.common.telemetry.tracing import trace_header
from services.device.telemetry.batch import Batch
from services.device.telemetry.uplink import Uplink
from services.device.things.model import Thing

NOTIFY_HEADER = "Thingway-Notify"
NOTIFY_SUBJECT_PREFIX = "ingest.stored."
_match_own_subject = re.compile(
    rf"({re.escape(NOTIFY_SUBJECT_PREFIX)}[0-9a-f]{{32}})(?:\.([0-9]{{1,6}}))?"
).fullmatch
OUTCOMES_PER_ANSWER = 100
"""Maximum outcomes in one answer."""
MAX_STORED_WAIT_SECONDS = 10.0
"""Seconds that a sender waits for the storage of its messages."""
MAX_OUTCOME_REASON_LENGTH = 1000
"""Maximum characters of a reason; 100 reasons fit into an answer, even with escapes."""


class StorageOutcome(msgspec.Struct, omit_defaults=True):
    """Whether a message is stored: `refused` is the reason of its rejection, otherwise None."""

    refused: str | None = None
    number: int = 0
    """The number that the sender gave the message."""


_decode_outcomes = msgspec.json.Decoder(list[StorageOutcome]).decode


async def notify_waiting_senders(bus: Bus, uplinks: Iterable[Uplink], batch: Batch) -> None:
    """Send the outcomes of `uplinks` to the senders that wait for them."""
    waiting = [
        (uplink, waiter)
        for uplink in uplinks
        if uplink.message.headers
        and (waiter := _match_own_subject(uplink.message.headers.get(NOTIFY_HEADER, "")))
    ]
    if not waiting:
        return
    reasons = {
        rejected.uplink.sequence: rejected.reason[:MAX_OUTCOME_REASON_LENGTH]
        for rejected in batch.rejected
    }
    answers: dict[str, list[StorageOutcome]] = defaultdict(list)
    for uplink, waiter in waiting:
        outcome = StorageOutcome(reasons.get(uplink.sequence), int(waiter[2] or 0))
        answers[waiter[1]].append(outcome)
    for subject, outcomes in answers.items():
        for first in range(0, len(outcomes), OUTCOMES_PER_ANSWER):
            await bus.publish_core(
                subject, msgspec.json.encode(outcomes[first : first + OUTCOMES_PER_ANSWER])
            )


class StorageWaiter:
    """Waits for the outcomes of `expected` messages: publish them in `async with`, then `wait`."""

    def __init__(self, bus: Bus, expected: int) -> None:
        self._bus = bus
        self._expected = expected
        self._outcomes: list[StorageOutcome] = []
        self._complete = asyncio.Event()
        self.subject = f"{NOTIFY_SUBJECT_PREFIX}{uuid4().hex}"

    async def __aenter__(self) -> Self:
        """Subscribe to the answers."""
        self._subscription = await self._bus.client.subscribe(self.subject, cb=self._on_message)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Unsubscribe."""
        if not self._bus.client.is_closed:
            await self._subscription.unsubscribe()

    async def _on_message(self, message: Msg) -> None:
        self._outcomes += _decode_outcomes(message.data)
        if len(self._outcomes) >= self._expected:
            self._complete.set()

    async def wait(self) -> list[StorageOutcome]:
        """Return every outcome; raise `UpstreamTimeout` after `MAX_STORED_WAIT_SECONDS`."""
        try:
            async with asyncio.timeout(MAX_STORED_WAIT_SECONDS):
                await self._complete.wait()
        except TimeoutError as error:
            raise UpstreamTimeout(
                f"accepted, but storage was not confirmed within {MAX_STORED_WAIT_SECONDS:g} s"
            ) from error
        return self._outcomes


@dataclass(frozen=True, slots=True)
class ThingReport:
    """Properties to report for a thing."""

    thing: Thing
    properties: dict[str, Any]
    hops: int
    """Number of flows that caused this report, one after another."""


class Reporter:
    """Publishes messages on behalf of things; one per process."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def send(
        self, thing: Thing, channel: str, payload: bytes, message_id: str | None = None
    ) -> None:
        """Publish a message; UPLINK drops a repeated `message_id` within its duplicate window."""
        known_as = None if message_id is None else f"{thing.id}-{channel}-{message_id}"
        headers = trace_header() | hops_header(current_hops())
        await self._bus.publish(
            [OutgoingMessage(uplink_subject(thing.sn, channel), payload, known_as, headers)]
        )

    async def report(self, thing: Thing, properties: dict[str, Any]) -> None:
        """Report current properties; return when they are stored and effective.

        Raises `InvalidInput` when they are rejected, `UpstreamTimeout` when no answer arrives.
        """
        (rejected,) = await self.report_all([ThingReport(thing, properties, current_hops())])
        if rejected is not None:
            raise InvalidInput(rejected, field="properties")

    async def report_all(self, reports: Sequence[ThingReport]) -> list[str | None]:
        """Report for several things; return for each the reason of a rejection, or None.

        Accepted reports are stored and effective on return. Raises `UpstreamTimeout` if an answer
        is missing.
        """
        if not reports:
            return []
        trace = trace_header()
        async with StorageWaiter(self._bus, len(reports)) as waiter:
            await self._bus.publish(
                [
                    OutgoingMessage(
                        uplink_subject(report.thing.sn, "report"),
                        msgspec.json.encode({"properties": report.properties}),
                        headers={
                            **trace,
                            **hops_header(report.hops),
                            NOTIFY_HEADER: f"{waiter.subject}.{number}",
                        },
                    )
                    for number, report in enumerate(reports)
                ],
            )
            outcomes = await waiter.wait()
        reasons = {outcome.number: outcome.refused for outcome in outcomes}
        return [reasons.get(number) for number in range(len(reports))]
