"""Runs codecs: a confined process for each tenant that has calls, a few at a time."""

import asyncio
import logging
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from typing import Self

import msgspec

from libs.common.sandbox.workers import (
    ask_worker,
    kill_worker,
    memory_of,
    start_worker,
    wait_killed,
)
from libs.common.scheduling import Caps, FairScheduler
from services.device.codecs.budget import EACH
from services.device.codecs.worker import Answer, Answered, Asked, Call, Outcome, Read
from services.device.things.codec_model import Codec

log = logging.getLogger(__name__)

WORKER = "services.device.codecs.worker"
MOST = 8
"""Processes."""
WAITING = 10_000
"""Calls of a tenant that wait."""
LARGEST_PROCESS = 32 * 1024 * 1024
"""Bytes of memory with which a process ends after a call: all of them together stay small."""
LARGEST = 8 * 1024 * 1024
"""Bytes of an answer."""
SLOWEST = 0.001
"""Seconds of the clock that a call may take on average, beside `LATE` for the batch."""
PATIENCE = 0.15
"""Seconds after which calls are late, beside `EACH` for each of them."""
STARTING = 2.0
"""Seconds that the start of a process may take: it is not the codec that is late."""
LATE = 10.0
"""A worker ends what takes too much of the processor; one that has not answered by then is lost."""
LOST = Outcome(fault="was ended with its process")
MOST_LOST = 3
"""Calls that end their process before the rest is refused unasked."""

_write = msgspec.msgpack.Encoder().encode
_read = msgspec.msgpack.Decoder(Answer).decode


class CodecWorkers:
    """Keeps so many processes; `async with` holds them.

    Tenants take turns by the time that their calls take, one call of a tenant at a time. The
    process of a tenant is kept for its next call; when more tenants call than there are
    processes, the one that was used longest ago ends.
    """

    def __init__(self, most: int = MOST, patience: float = PATIENCE) -> None:
        self._most = most
        self._patience = patience
        self._turns = FairScheduler("codecs", most, items=WAITING, caps=lambda _: Caps(1, 1))
        self._processes: dict[str, Process | None] = {}
        """By tenant, the one used last at the end; None while it starts."""
        self._due: dict[str, float] = {}
        """By tenant, when the calls in hand are overdue (monotonic)."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for tenant in list(self._processes):
            await self._end(tenant)

    async def run(
        self, tenant: str, codec: Codec, calls: Sequence[Call], *, logging: bool = False
    ) -> list[Outcome]:
        """Return the outcomes of calls, with lines of their console if `logging`.

        A codec that ends its process is at fault for all of them.
        """
        asked = Asked(codec.version, list(calls), logging=logging)
        return (await self._answer(tenant, asked, len(calls), codec)).outcomes

    async def run_each(self, tenant: str, codec: Codec, calls: Sequence[Call]) -> Sequence[Outcome]:
        """What becomes of calls; only the one that ends the process is at fault for it.

        After `MOST_LOST` of those the rest is not asked.
        """
        outcomes: list[Outcome] = []
        left, lost = [calls], 0
        while left:
            some = left.pop()
            if lost == MOST_LOST:
                outcomes += [LOST] * len(some)
                continue
            made = await self.run(tenant, codec, some)
            ended = next(iter(made), None) is LOST
            if len(some) > 1 and ended:
                middle = len(some) // 2
                left += [some[middle:], some[:middle]]
            else:
                lost += ended
                outcomes += made
        return outcomes

    async def run_within(
        self, seconds: float, tenant: str, codec: Codec, calls: Sequence[Call]
    ) -> Answered:
        """The same, of so many seconds of the processor, and how many it took."""
        asked = Asked(codec.version, list(calls), seconds=seconds)
        return await self._answer(tenant, asked, len(calls), codec)

    async def read(
        self, tenant: str, scripts: Sequence[str], names: Sequence[str]
    ) -> list[Outcome]:
        """Which of `names` are functions of each script, or what keeps it from being read."""
        asked = Read(list(scripts), list(names))
        return (await self._answer(tenant, asked, len(scripts))).outcomes

    def is_late(self, tenant: str, asked: float) -> bool:
        """Whether calls that were `asked` (monotonic) take too long to wait for."""
        return time.monotonic() > self._due.get(tenant, asked + self._patience)

    async def _answer(
        self, tenant: str, asked: Asked | Read, count: int, codec: Codec | None = None
    ) -> Answered:
        async with self._turns.slot(tenant):
            started = time.monotonic()
            self._due[tenant] = started + STARTING
            try:
                process = await self._process(tenant)
                self._due[tenant] = time.monotonic() + self._patience + EACH * count
                async with asyncio.timeout(LATE + SLOWEST * count):
                    answered = await _ask(process, asked, codec)
            except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
                log.warning("a worker of codecs was lost: %s", type(error).__name__)
                await self._end(tenant)
                return Answered([LOST] * count, time.monotonic() - started)
            except asyncio.CancelledError:
                await self._end(tenant)  # its answer would be taken for that of the next
                raise
            finally:
                del self._due[tenant]
            if memory_of(process) > LARGEST_PROCESS:
                await self._end(tenant)
            return answered

    async def _process(self, tenant: str) -> Process:
        process = self._processes.pop(tenant, None)
        if process is None or process.returncode is not None:
            if len(self._processes) >= self._most:
                await self._end(next(one for one in self._processes if not self._turns.held(one)))
            self._processes[tenant] = None
            process = await start_worker(WORKER, largest=LARGEST)
        self._processes[tenant] = process
        return process

    async def _end(self, tenant: str) -> None:
        process = self._processes.pop(tenant, None)
        if process is not None:
            kill_worker(process)
            await wait_killed(process)


async def _ask(process: Process, asked: Asked | Read, codec: Codec | None) -> Answered:
    answer = _read(await ask_worker(process, _write(asked)))
    if answer is None:
        whole = msgspec.structs.replace(asked, codec=codec)
        answer = _read(await ask_worker(process, _write(whole)))
    return answer or Answered([])
