"""Processes that run codecs, and budgets of processor time for codecs.

How much of the processor codecs may take from others: what a frame takes, and a little ahead.

A codec that loops, or is slow, uses up what it has ahead; then it is asked only as often as that
grows again. Its tenant's codecs have a bound together.
"""

import asyncio
import logging
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from typing import Self

import msgspec

from libs.common.recent import Recent
from libs.common.sandbox.workers import (
    ask_worker,
    kill_worker,
    memory_of,
    start_worker,
    wait_killed,
)
from libs.common.scheduling import Caps, FairScheduler
from services.device.lorawan.codec_worker import Answer, Answered, Asked, Call, Outcome, Read
from services.device.things.codec_model import Codec

log = logging.getLogger(__name__)

EACH = 0.0001
"""Seconds of the processor for a frame; makers' codecs take a seventh."""
KEPT = 10_000


class _Account:
    __slots__ = ("at", "left")

    def __init__(self, left: float, at: float) -> None:
        self.left = left
        self.at = at


class Budget:
    """Accounts by key, each with up to `most` seconds, growing by `rate` per second."""

    def __init__(self, most: float, rate: float) -> None:
        self._most = most
        self._rate = rate
        self._accounts: Recent[object, _Account] = Recent(KEPT)

    def left(self, key: object, frames: int, now: float) -> float:
        """Seconds that so many frames may take at `now` (monotonic), if more than 0."""
        account = self._accounts.get(key)
        if account is None:
            account = _Account(self._most, now)
            self._accounts.put(key, account)
        account.left = min(self._most, account.left + (now - account.at) * self._rate)
        account.at = now
        return account.left + frames * EACH if account.left > 0 else 0.0

    def spend(self, key: object, frames: int, seconds: float) -> None:
        """Note what frames have taken; what they did not take is nobody's."""
        account = self._accounts.get(key)
        if account is not None:
            account.left -= max(seconds - frames * EACH, 0.0)


class Budgets:
    """The accounts of codecs and of their tenants."""

    def __init__(self, codec_rate: float = 0.02, tenant_rate: float = 0.05) -> None:
        """The rates are those by which accounts grow, seconds of the processor per second."""
        self._codecs = Budget(most=0.5, rate=codec_rate)
        self._tenants = Budget(most=1.0, rate=tenant_rate)

    def left(self, tenant: str, version: str, frames: int, now: float) -> float:
        """Seconds that so many frames of a codec may take; 0 is none."""
        return min(
            self._codecs.left((tenant, version), frames, now),
            self._tenants.left(tenant, frames, now),
        )

    def spend(self, tenant: str, version: str, frames: int, seconds: float) -> None:
        """Note what they have taken."""
        self._codecs.spend((tenant, version), frames, seconds)
        self._tenants.spend(tenant, frames, seconds)


WORKER = "services.device.lorawan.codec_worker"
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
