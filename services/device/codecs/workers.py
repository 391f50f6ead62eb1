"""Runs codecs: a confined process for each tenant that has calls, a few at a time."""

import asyncio
import logging
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from typing import Self

import msgspec

from libs.common.sandbox.workers import ask_worker, kill_worker, start_worker
from services.device.codecs.model import Codec
from services.device.codecs.worker import Answer, Answered, Asked, Call, Outcome, Read

log = logging.getLogger(__name__)

WORKER = "services.device.codecs.worker"
LARGEST = 8 * 1024 * 1024
"""Bytes of an answer."""
SLOWEST = 0.001
"""Seconds of the clock that a call may take on average, beside `LATE` for the batch."""
LATE = 10.0
"""A worker ends what takes too much of the processor; one that has not answered by then is lost."""
LOST = Outcome(fault="was ended with its process")
MOST_LOST = 3
"""Calls that end their process before the rest is refused unasked."""

_write = msgspec.msgpack.Encoder().encode
_read = msgspec.msgpack.Decoder(Answer).decode


class _Worker:
    """The process of a tenant; one batch at a time."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.process: Process | None = None
        self.asked = False


class CodecWorkers:
    """Keeps so many processes; `async with` holds them."""

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._workers: dict[str, _Worker] = {}
        """By tenant; who was asked last stands last."""
        self._room = asyncio.Semaphore(most)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._workers.values():
            await _end(worker)

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

    async def _answer(
        self, tenant: str, asked: Asked | Read, count: int, codec: Codec | None = None
    ) -> Answered:
        worker = self._workers.setdefault(tenant, _Worker())
        async with worker.turn, self._room:
            worker.asked = True
            self._workers[tenant] = self._workers.pop(tenant)
            started = time.monotonic()
            try:
                process = await self._process(worker)
                async with asyncio.timeout(LATE + SLOWEST * count):
                    return await _ask(process, asked, codec)
            except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
                log.warning("a worker of codecs was lost: %s", type(error).__name__)
                await _end(worker)
                return Answered([LOST] * count, time.monotonic() - started)
            except asyncio.CancelledError:
                await _end(worker)  # its answer would be taken for that of the next
                raise
            finally:
                worker.asked = False

    async def _process(self, wanted: _Worker) -> Process:
        """The process of a worker; who was not asked for longest loses its own for it."""
        if wanted.process is None or wanted.process.returncode is not None:
            others = (one for one in self._workers.values() if one is not wanted)
            taken = [one for one in others if one.asked or one.process is not None]
            if len(taken) >= self._most:
                await _end(next(one for one in taken if not one.asked))
            wanted.process = await start_worker(WORKER, largest=LARGEST)
        return wanted.process


async def _ask(process: Process, asked: Asked | Read, codec: Codec | None) -> Answered:
    answer = _read(await ask_worker(process, _write(asked)))
    if answer is None:
        whole = msgspec.structs.replace(asked, codec=codec)
        answer = _read(await ask_worker(process, _write(whole)))
    return answer or Answered([])


async def _end(worker: _Worker) -> None:
    process, worker.process = worker.process, None
    if process is not None:
        kill_worker(process)
        await process.wait()
