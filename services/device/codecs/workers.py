"""Runs codecs: a confined process for each tenant that has calls, a few at a time."""

import asyncio
import logging
from asyncio.subprocess import Process
from collections.abc import Sequence
from typing import Self

import msgspec

from libs.common.sandbox.workers import ask_worker, kill_worker, start_worker
from services.device.codecs.model import Codec
from services.device.codecs.worker import Answer, Asked, Call, Outcome

log = logging.getLogger(__name__)

WORKER = "services.device.codecs.worker"
LARGEST = 8 * 1024 * 1024
"""Bytes of an answer."""
SLOWEST = 0.001
"""Seconds of the clock that a call may take on average, beside `LATE` for the batch."""
LATE = 10.0
"""A worker ends what takes too much of the processor; one that has not answered by then is lost."""

_write = msgspec.msgpack.Encoder().encode
_read = msgspec.msgpack.Decoder(Answer).decode


class _Worker:
    """The process of a tenant; one batch at a time."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.process: Process | None = None


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

    async def run(self, tenant: str, codec: Codec, calls: Sequence[Call]) -> list[Outcome]:
        """What becomes of calls; a codec that ends its process is at fault for all of them."""
        worker = self._workers.setdefault(tenant, _Worker())
        async with worker.turn, self._room:
            await self._make_room(worker)
            self._workers[tenant] = self._workers.pop(tenant)
            if worker.process is None or worker.process.returncode is not None:
                worker.process = await start_worker(WORKER, largest=LARGEST)
            try:
                async with asyncio.timeout(LATE + SLOWEST * len(calls)):
                    return await _ask(worker.process, codec, list(calls))
            except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
                log.warning("a worker of codecs was lost: %s", type(error).__name__)
                await _end(worker)
                return [Outcome(fault="was ended with its process")] * len(calls)

    async def _make_room(self, wanted: _Worker) -> None:
        """End the process of who was not asked for longest, when all are taken."""
        if wanted.process is not None:
            return
        running = [one for one in self._workers.values() if one.process is not None]
        if len(running) >= self._most:
            idle = next(one for one in running if not one.turn.locked())
            await _end(idle)


async def _ask(process: Process, codec: Codec, calls: list[Call]) -> list[Outcome]:
    asked = Asked(codec.version, calls)
    answer = _read(await ask_worker(process, _write(asked)))
    if answer is None:
        whole = msgspec.structs.replace(asked, codec=codec)
        answer = _read(await ask_worker(process, _write(whole)))
    return answer or []


async def _end(worker: _Worker) -> None:
    if worker.process is not None:
        kill_worker(worker.process)
        await worker.process.wait()
        worker.process = None
