"""The limits of tenants, requested from `auth` and cached, and their usage.

The number of processes is unknown, so a request for usage collects the answers for
`USAGE_ANSWER_SECONDS`.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from uuid import uuid4

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from opentelemetry import metrics

from libs.common.bus import Bus, RpcClient
from libs.common.contracts.limits import GET_LIMITS, GetLimits, Limits, TenantLimits, UsageRequest
from libs.common.decoding import JSON_ERRORS
from libs.common.errors import ThingwayError, TooManyRequests, Unavailable
from libs.common.lru_cache import LruCache
from libs.common.scheduling import FairScheduler, LaneFull
from libs.common.store.mongo import StoreError

log = logging.getLogger(__name__)

_rejection_counter = metrics.get_meter("thingway").create_counter(
    "thingway_limited", description="Rejected requests and messages, by limit and tenant"
)


def count_rejection(limit: str, tenant: str) -> None:
    """Count a rejection; `limit` is a field of `Limits` in camelCase."""
    _rejection_counter.add(1, {"limit": limit, "tenant": tenant})


CACHE_SECONDS = 5.0
"""Seconds after which a tenant's limits are read again."""
MAX_CACHED_TENANTS = 10_000
"""Tenants whose limits are cached."""


class LimitsCache:
    """The limits of each tenant; the defaults until `auth` has answered.

    A change takes effect within `CACHE_SECONDS`. While `auth` is unavailable, the last known limits
    remain valid.
    """

    def __init__(self, rpc: RpcClient, defaults: Limits | None = None) -> None:
        self._rpc = rpc
        self._defaults = defaults or Limits()
        self._known: LruCache[str, tuple[float, Limits]] = LruCache(MAX_CACHED_TENANTS)
        self._asking: dict[str, asyncio.Task[None]] = {}

    def get(self, tenant: str) -> Limits:
        """Return the known limits of a tenant; refresh outdated ones in the background."""
        requested_at, limits = self._known.get(tenant) or (-CACHE_SECONDS, self._defaults)
        if requested_at + CACHE_SECONDS <= time.monotonic() and tenant not in self._asking:
            task = self._asking[tenant] = asyncio.ensure_future(self._request(tenant, limits))
            task.add_done_callback(lambda _: self._asking.pop(tenant, None))
        return limits

    async def fetch(self, tenant: str) -> Limits:
        """Return the limits of a tenant; wait for them if none are known."""
        limits = self.get(tenant)
        task = self._asking.get(tenant)
        if tenant in self._known or task is None:
            return limits
        await asyncio.shield(task)
        return self.get(tenant)

    async def _request(self, tenant: str, before: Limits) -> None:
        try:
            answer = await self._rpc.call(GET_LIMITS, GetLimits(tenant), TenantLimits)
            before = answer.limits
        except ThingwayError as error:
            log.info("limits of %s cannot be refreshed: %s", tenant, error)
        self._known.put(tenant, (time.monotonic(), before))


USAGE_REQUEST_SUBJECT = "use.ask"
USAGE_ANSWER_SUBJECT = "use.answer"
USAGE_ANSWER_SECONDS = 0.3
"""Seconds in which processes answer."""
CONCURRENT_USAGE_REQUESTS = 8
"""Usage requests that a process sends or answers concurrently: counting in a database may take
seconds."""

Usage = Mapping[str, int | float]
"""Amounts by the name of the limit in camelCase: `{"requests": 3}`."""
UsageReader = Callable[[UsageRequest], Awaitable[Usage]]
"""Returns this process's share of the usage of a tenant and of one of its principals."""

_decode_request = msgspec.json.Decoder(UsageRequest).decode
_decode_usage = msgspec.json.Decoder(dict[str, int | float]).decode


async def answer_usage_requests(bus: Bus, part: UsageReader, queue: str = "") -> None:
    """Answer usage requests with this process's share.

    With `queue`, one process of that name answers for all, for amounts that are counted in a
    database.
    """

    scheduler = FairScheduler("use", CONCURRENT_USAGE_REQUESTS)

    async def answer(message: Msg, request: UsageRequest) -> None:
        try:
            await message.respond(msgspec.json.encode(await part(request)))
        except (NatsError, StoreError) as error:
            log.warning("usage could not be reported: %r", error)

    async def receive(message: Msg) -> None:
        try:
            usage_request = _decode_request(message.data)
            scheduler.start(usage_request.tenant, partial(answer, message, usage_request))
        except (*JSON_ERRORS, LaneFull) as error:
            log.warning("a request for usage was ignored: %r", error)

    await bus.client.subscribe(USAGE_REQUEST_SUBJECT, queue, cb=receive)


class UsageCollector:
    """Requests the usage from all processes, which takes `USAGE_ANSWER_SECONDS`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._scheduler = FairScheduler("questions about use", CONCURRENT_USAGE_REQUESTS)

    async def collect(self, request: UsageRequest) -> Usage:
        """Return the sum of the shares of all processes.

        Raises `LaneFull` if too many requests of the tenant wait, `Unavailable` without the bus.
        """
        try:
            async with self._scheduler.slot(request.tenant):
                return await self._sum(msgspec.json.encode(request))
        except NatsError as error:
            raise Unavailable(f"the bus does not take questions: {error!r}") from error

    async def _sum(self, request: bytes) -> Usage:
        loop, client = asyncio.get_running_loop(), self._bus.client
        answers = f"{USAGE_ANSWER_SUBJECT}.{uuid4().hex}"
        subscription = await client.subscribe(answers)
        together: Counter[str] = Counter()
        try:
            await client.publish(USAGE_REQUEST_SUBJECT, request, reply=answers)
            end = loop.time() + USAGE_ANSWER_SECONDS
            while (remaining := end - loop.time()) > 0:
                try:
                    message = await subscription.next_msg(remaining)
                except NatsTimeout:
                    break
                if message.data:  # nats-server answers with an empty message if no process does
                    together.update(_decode_usage(message.data))
        finally:
            await subscription.unsubscribe()
        return together


SlotLimit = tuple[str, int, str]
"""A holder, its maximum number of slots, and the name of that limit."""


class SlotCounts:
    """The occupied slots per holder; holders without slots use no memory."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def occupied(self, holder: str) -> int:
        """Return the number of slots that a holder occupies."""
        return self._held.get(holder, 0)

    def occupy(self, claims: Sequence[SlotLimit], number: int = 1) -> SlotLimit | None:
        """Occupy `number` slots for each claim's holder, or return the first full claim."""
        slots = self._held
        for claim in claims:
            if slots.get(claim[0], 0) + number > claim[1]:
                return claim
        for holder, _, _ in claims:
            slots[holder] = slots.get(holder, 0) + number
        return None

    def release(self, claims: Sequence[SlotLimit], number: int = 1) -> None:
        """Release `number` slots of each claim's holder."""
        slots = self._held
        for holder, _, _ in claims:
            remaining = slots.pop(holder, 0) - number
            if remaining > 0:
                slots[holder] = remaining


class HeldSlots:
    """The occupied slots of several claims; call `release` exactly once."""

    __slots__ = ("_claims", "_counts")

    def __init__(self, counts: SlotCounts, claims: Sequence[SlotLimit]) -> None:
        self._counts = counts
        self._claims = claims

    def release(self) -> None:
        """Release the slots."""
        self._counts.release(self._claims)


def acquire_slots(
    counts: SlotCounts, claims: Sequence[SlotLimit], tenant: str, again: float, number: int = 1
) -> HeldSlots:
    """Occupy slots of every claim; raise `TooManyRequests` to retry after `again` s.

    The metrics count the rejection for `tenant`, which is empty for callers without a login.
    """
    full_claim = counts.occupy(claims, number)
    if full_claim is None:
        return HeldSlots(counts, claims)
    _, maximum, limit = full_claim
    if tenant:
        count_rejection(limit, tenant)
    raise TooManyRequests(f"more than {maximum} {limit} at once", retry_after=again)
