"""Processes that run codecs, and their budgets of processor time.

For each frame, a codec may use the time of a normal frame, and beyond it a reserve. A slow codec
uses up its reserve and then runs only as often as the reserve grows. All codecs of a tenant also
share one reserve.
"""

import asyncio
import logging
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import msgspec

from libs.common.lru_cache import LruCache
from libs.common.sandbox.workers import (
    kill_worker,
    read_process_memory,
    send_request,
    start_worker,
    wait_until_killed,
)
from libs.common.scheduling import Caps, FairScheduler
from services.device.lorawan.codec_calls import (
    BatchResult,
    CallOutcome,
    CodecCall,
    FunctionsRequest,
    RunRequest,
    WorkerRequest,
    WorkerResponse,
)
from services.device.things.codec_model import Codec

log = logging.getLogger(__name__)

SECONDS_PER_FRAME = 0.0001
"""Processor time that each frame may use without a charge to a budget.

Codecs of manufacturers need a seventh of it.
"""
MAX_TIME_ACCOUNTS = 10_000


@dataclass(slots=True)
class _TimeAccount:
    """The processor seconds that a key may still use, at a monotonic time."""

    left: float
    at: float


class TimeBudget:
    """Processor time by key: each account grows by `rate` per second, up to `maximum` seconds."""

    def __init__(self, maximum: float, rate: float) -> None:
        self._maximum = maximum
        self._rate = rate
        self._accounts: LruCache[object, _TimeAccount] = LruCache(MAX_TIME_ACCOUNTS)

    def seconds_left(self, key: object, frames: int, now: float) -> float:
        """Return the processor seconds that `frames` frames may use; 0 if the account is empty.

        `now` is in monotonic seconds.
        """
        account = self._accounts.get(key)
        if account is None:
            account = _TimeAccount(self._maximum, now)
            self._accounts.put(key, account)
        account.left = min(self._maximum, account.left + (now - account.at) * self._rate)
        account.at = now
        return account.left + frames * SECONDS_PER_FRAME if account.left > 0 else 0.0

    def spend(self, key: object, frames: int, seconds: float) -> None:
        """Charge an account for processor time beyond `SECONDS_PER_FRAME` for each of `frames`."""
        account = self._accounts.get(key)
        if account is not None:
            account.left -= max(seconds - frames * SECONDS_PER_FRAME, 0.0)


class CodecBudgets:
    """Budgets of processor time: one per codec, and one per tenant for all its codecs."""

    def __init__(self, codec_rate: float = 0.02, tenant_rate: float = 0.05) -> None:
        """Set the rates at which accounts grow, in seconds of the processor per second."""
        self._codecs = TimeBudget(maximum=0.5, rate=codec_rate)
        self._tenants = TimeBudget(maximum=1.0, rate=tenant_rate)

    def seconds_left(self, tenant: str, version: str, frames: int, now: float) -> float:
        """Return the processor seconds that `frames` frames of a codec may use.

        Returns 0 if the account of the codec or of the tenant is empty. `now` is in monotonic
        seconds.
        """
        return min(
            self._codecs.seconds_left((tenant, version), frames, now),
            self._tenants.seconds_left(tenant, frames, now),
        )

    def spend(self, tenant: str, version: str, frames: int, seconds: float) -> None:
        """Charge codec and tenant for processor time beyond `SECONDS_PER_FRAME` for each frame."""
        self._codecs.spend((tenant, version), frames, seconds)
        self._tenants.spend(tenant, frames, seconds)


WORKER_MODULE = "services.device.lorawan.codec_worker"
MAX_PROCESSES = 8
"""Maximum number of codec processes."""
MAX_WAITING_BATCHES_PER_TENANT = 10_000
"""Maximum batches of calls of a tenant that wait for its process."""
MAX_PROCESS_BYTES = 32 * 1024 * 1024
"""Bytes of memory above which a codec process ends after its call."""
MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Maximum bytes of an answer of a codec process."""
ANSWER_SECONDS_PER_CALL = 0.001
"""Wall time per call that is added to `ANSWER_TIMEOUT_SECONDS` of a batch."""
LATE_SECONDS = 0.15
"""Seconds after which a batch is late, in addition to `SECONDS_PER_FRAME` for each frame."""
MAX_START_SECONDS = 2.0
"""Seconds that a process may take to start; the calls of its tenant are not late until then."""
ANSWER_TIMEOUT_SECONDS = 10.0
"""Seconds after which a silent worker is lost. A worker itself limits its processor time."""
LOST_OUTCOME = CallOutcome(fault="ended its process")
MAX_LOST_CALLS = 3
"""Maximum calls of a batch that end their process; then the remaining ones are rejected."""

_encode_request = msgspec.msgpack.Encoder().encode
_decode_response = msgspec.msgpack.Decoder(WorkerResponse).decode


class CodecWorkers:
    """Up to `maximum` codec processes; `async with` closes them.

    Tenants take turns by the time that their batches take. One batch of a tenant runs at a time. A
    process serves one tenant. When `maximum` processes exist and another tenant needs one, the idle
    process that was used longest ago ends.
    """

    def __init__(self, maximum: int = MAX_PROCESSES, late_seconds: float = LATE_SECONDS) -> None:
        self._maximum = maximum
        self._late_seconds = late_seconds
        self._turns = FairScheduler(
            "codecs", maximum, items=MAX_WAITING_BATCHES_PER_TENANT, caps=lambda _: Caps(1, 1)
        )
        self._processes: dict[str, Process | None] = {}
        """By tenant, the most recently used process last; None while a process starts."""
        self._due: dict[str, float] = {}
        """By tenant, the monotonic time after which its running calls are late."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for tenant in list(self._processes):
            await self._end_process(tenant)

    async def run(
        self, tenant: str, codec: Codec, calls: Sequence[CodecCall], *, logging: bool = False
    ) -> list[CallOutcome]:
        """Return the outcomes of calls, with console output if `logging`.

        If a call ends the process, all calls fail.
        """
        request = RunRequest(codec.version, list(calls), logging=logging)
        return (await self._request_answer(tenant, request, len(calls), codec)).outcomes

    async def run_despite_crashes(
        self, tenant: str, codec: Codec, calls: Sequence[CodecCall]
    ) -> Sequence[CallOutcome]:
        """Return the outcomes of calls; a call that ends its process fails alone.

        The other calls run again in smaller batches. After `MAX_LOST_CALLS` calls that end their
        process, the remaining calls are rejected.
        """
        outcomes: list[CallOutcome] = []
        batches, lost = [calls], 0
        while batches:
            batch = batches.pop()
            if lost == MAX_LOST_CALLS:
                outcomes += [LOST_OUTCOME] * len(batch)
                continue
            made = await self.run(tenant, codec, batch)
            ended = next(iter(made), None) is LOST_OUTCOME
            if len(batch) > 1 and ended:
                middle = len(batch) // 2
                batches += [batch[middle:], batch[:middle]]
            else:
                lost += ended
                outcomes += made
        return outcomes

    async def run_within(
        self, seconds: float, tenant: str, codec: Codec, calls: Sequence[CodecCall]
    ) -> BatchResult:
        """Run calls within processor time (`seconds`); return outcomes and time used."""
        request = RunRequest(codec.version, list(calls), seconds=seconds)
        return await self._request_answer(tenant, request, len(calls), codec)

    async def find_functions(
        self, tenant: str, scripts: Sequence[str], names: Sequence[str]
    ) -> list[CallOutcome]:
        """Return which of `names` are functions of each script, or its fault."""
        request = FunctionsRequest(list(scripts), list(names))
        return (await self._request_answer(tenant, request, len(scripts))).outcomes

    def is_late(self, tenant: str, since: float) -> bool:
        """Return whether the running calls of a tenant are late.

        If no call is running, calls that wait since `since` (monotonic seconds) are late after
        `late_seconds` of the constructor.
        """
        return time.monotonic() > self._due.get(tenant, since + self._late_seconds)

    async def _request_answer(
        self, tenant: str, request: WorkerRequest, count: int, codec: Codec | None = None
    ) -> BatchResult:
        async with self._turns.slot(tenant):
            started = time.monotonic()
            self._due[tenant] = started + MAX_START_SECONDS
            try:
                process = await self._get_or_start_process(tenant)
                seconds = self._late_seconds + SECONDS_PER_FRAME * count
                self._due[tenant] = time.monotonic() + seconds
                async with asyncio.timeout(
                    ANSWER_TIMEOUT_SECONDS + ANSWER_SECONDS_PER_CALL * count
                ):
                    answered = await _request_with_codec(process, request, codec)
            except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
                log.warning("a codec process was lost and is restarted: %s", type(error).__name__)
                await self._end_process(tenant)
                return BatchResult([LOST_OUTCOME] * count, time.monotonic() - started)
            except asyncio.CancelledError:
                await self._end_process(tenant)  # the next call would read its answer
                raise
            finally:
                del self._due[tenant]
            if read_process_memory(process) > MAX_PROCESS_BYTES:
                await self._end_process(tenant)
            return answered

    async def _get_or_start_process(self, tenant: str) -> Process:
        process = self._processes.pop(tenant, None)
        if process is None or process.returncode is not None:
            if len(self._processes) >= self._maximum:
                await self._end_process(
                    next(idle for idle in self._processes if not self._turns.held(idle))
                )
            self._processes[tenant] = None
            process = await start_worker(WORKER_MODULE, largest=MAX_ANSWER_BYTES)
        self._processes[tenant] = process
        return process

    async def _end_process(self, tenant: str) -> None:
        process = self._processes.pop(tenant, None)
        if process is not None:
            kill_worker(process)
            await wait_until_killed(process)


async def _request_with_codec(
    process: Process, request: WorkerRequest, codec: Codec | None
) -> BatchResult:
    answer = _decode_response(await send_request(process, _encode_request(request)))
    if answer is None:
        whole = msgspec.structs.replace(request, codec=codec)
        answer = _decode_response(await send_request(process, _encode_request(whole)))
    return answer or BatchResult([])
