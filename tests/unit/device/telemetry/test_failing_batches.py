"""Batches of which a message cannot be processed."""

from dataclasses import fields, replace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from nats.aio.msg import Msg

from libs.common.store.mongo import StoreError
from services.device.telemetry.batch import Batch
from services.device.telemetry.ingest import MAX_FAILURES, Ingest
from tests.unit.device.telemetry.test_ingest_ports import report
from tests.unit.device.things.examples import thing

SN = "SN1"


class FailingIngest(Ingest):
    """Fails for every batch with the message 3 or 6, and records its calls."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.done: list[tuple[list[str], bool]] = []
        self.dead: list[Batch] = []

    async def _process(self, messages: list[Msg], *, slow: bool) -> None:
        numbers = [message.reply.split(".")[5] for message in messages]
        if {"3", "6"} & set(numbers):
            raise ValueError("bad value")
        self.done.append((numbers, slow))

    async def _store_and_announce(self, uplinks: Any, batch: Batch, messages: list[Msg]) -> None:
        self.dead.append(batch)


@pytest.fixture
def ingest() -> FailingIngest:
    """Return ingest whose store and bus answer."""
    parts: dict[str, Any] = {field.name: Mock() for field in fields(Ingest) if field.init}
    parts["store"].check_writable = AsyncMock()
    parts["bus"].js.stream_info = AsyncMock()
    parts["things"].find_by_sn = AsyncMock(return_value={})
    return FailingIngest(**parts)


BATCH = [report(number, SN) for number in range(1, 5)]


async def test_a_message_that_fails_alone_is_moved_after_several_tries(
    ingest: FailingIngest,
) -> None:
    """The others of its batch are processed each time."""
    for _ in range(MAX_FAILURES - 1):
        with pytest.raises(ValueError, match="bad value"):
            await ingest.handle(BATCH)
    assert ingest.dead == []
    await ingest.handle(BATCH, slow=True)
    ((refused,),) = [batch.rejected for batch in ingest.dead]
    assert refused.reason == "could not be processed: ValueError: bad value"
    assert ingest.done == [
        (numbers, slow) for slow in (False, False, True) for numbers in (["1", "2"], ["4"])
    ]


async def test_only_the_failures_of_the_last_messages_are_counted(
    ingest: FailingIngest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message that failed first begins again."""
    monkeypatch.setattr("services.device.telemetry.ingest.FAILURE_CACHE_SIZE", 1)
    first, last = [report(3, SN)], [report(6, SN)]
    for batch in (first, first, last, last):
        with pytest.raises(ValueError, match="bad value"):
            await ingest.handle(batch)
    await ingest.handle(last)
    assert len(ingest.dead) == 1
    with pytest.raises(ValueError, match="bad value"):
        await ingest.handle(first)


async def test_the_reason_hides_write_only_values(ingest: FailingIngest) -> None:
    """An error may quote a value of a device with write-only properties."""
    hiding = replace(thing(sn=SN), tsl=Mock(conceals=True))
    ingest.things.find_by_sn = AsyncMock(return_value={SN: hiding})  # type: ignore[method-assign]
    for _ in range(MAX_FAILURES - 1):
        with pytest.raises(ValueError, match="bad value"):
            await ingest.handle(BATCH[2:3])
    await ingest.handle(BATCH[2:3])
    assert "bad value" not in ingest.dead[0].rejected[0].reason


@pytest.mark.parametrize("part", ["store", "bus"])
async def test_nothing_is_moved_while_a_server_does_not_answer(
    ingest: FailingIngest, part: str
) -> None:
    """The whole batch is delivered again."""
    answer: Any = ingest.store.check_writable if part == "store" else ingest.bus.js.stream_info
    answer.side_effect = StoreError("no answer")
    for _ in range(MAX_FAILURES + 1):
        with pytest.raises(ValueError, match="bad value"):
            await ingest.handle(BATCH)
    assert (ingest.done, ingest.dead) == ([], [])


async def test_messages_that_waited_for_codecs_fail_without_an_error(
    ingest: FailingIngest,
) -> None:
    """The result says that they are delivered again; the others wait for their codecs."""
    assert not await ingest._handle_slow(BATCH)
    assert await ingest._handle_slow(BATCH[:2])
    assert ingest.done == [(["1", "2"], True), (["4"], True), (["1", "2"], True)]
