"""Search for devices: text search, pages and totals.

Text in a device's name or SN is found by ngrams, the sequences of four characters in it. A document
stores the case-folded ngrams of its name and SN, and the last three characters of each (field
`grams`); an index orders them by id. A text with all its ngrams in a device may be in the device:
the search reads the devices that have the rarest ngram, and a regular expression decides. A text of
three characters is the beginning of an ngram.

If a case-insensitive comparison in MongoDB finds two texts equal, `fold_case` returns the same text
for both. This was tried with every character that has a case.
"""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Generic, TypeVar

import msgspec
from bson.regex import Regex

from libs.common.http.streaming import iterate_rows
from libs.common.jobs import NamedTasks
from libs.common.lru_cache import LruCache
from libs.common.store.mongo import Collection, literal_pattern
from libs.common.things import DIRECT_INTEGRATION
from services.device.things.model import Device
from services.device.things.visibility import Condition

NGRAM_LENGTH, MIN_NGRAM_LENGTH = 4, 3
"""Characters of an ngram, and of the shorter ngram at the end of a text."""
NGRAM_INDEX = "text"
"""The index on `grams`, tenant, application and id."""
MAX_NGRAMS = 8
"""Maximum ngrams of a search whose devices are counted to find the rarest."""


def fold_case(text: str) -> str:
    """Return the form that all upper- and lower-case spellings of a text share."""
    return text.upper().casefold()


def extract_ngrams(*texts: str) -> list[str]:
    """Return the sorted ngrams of `texts`, including the last three characters of each text."""
    return sorted(
        {ngram for text in texts for ngram in _substrings(fold_case(text), MIN_NGRAM_LENGTH)}
    )


def select_ngrams(texts: Iterable[str]) -> list[str]:
    """Return at most `MAX_NGRAMS` ngrams that a device with all of these texts has.

    The ngrams are spread evenly over the texts. If all texts are shorter than an ngram, return a
    text of three characters, the beginning of an ngram. If all are shorter still, return nothing.
    """
    forms = [fold_case(text) for text in texts]
    ngrams = list(
        dict.fromkeys(ngram for form in forms for ngram in _substrings(form, NGRAM_LENGTH))
    )
    if len(ngrams) > MAX_NGRAMS:
        return [ngrams[at * len(ngrams) // MAX_NGRAMS] for at in range(MAX_NGRAMS)]
    return ngrams or [form for form in forms if len(form) == MIN_NGRAM_LENGTH][:1]


def _substrings(form: str, shortest: int) -> Iterable[str]:
    return (form[at : at + NGRAM_LENGTH] for at in range(len(form) - shortest + 1))


T = TypeVar("T")

MIN_CACHED_TOTAL = 10_000
"""Totals below this number are not cached: counting 10,000 takes 5 ms, a million 0.3 s."""
RECOUNT_AFTER_SECONDS = 10.0
"""Seconds after which a cached total is counted again in the background."""
MAX_TOTAL_AGE_SECONDS = 300.0
"""Seconds after which a request waits until the total is counted again."""


class CachedCounter(Generic[T]):
    """Counts devices and caches large totals; one instance of each kind per process.

    `count` gets a condition and optionally a `hint`; `size` returns how many devices a result
    covers. The totals of the last `cache_size` searches are cached.
    """

    def __init__(
        self,
        devices: Collection,
        count: Callable[..., Awaitable[T]],
        size: Callable[[T], int],
        cache_size: int,
    ) -> None:
        self._devices = devices
        self._counted = count
        self._size = size
        self._known: LruCache[bytes, tuple[float, T]] = LruCache(cache_size)
        self._counting = NamedTasks()

    async def count(
        self, condition: dict[str, Any], hint: str | None = None, *, fresh: bool = False
    ) -> T:
        """Return the total for a condition; the cached total if it is large, unless `fresh`."""
        options: dict[str, Any] = {"hint": hint} if hint else {}
        key = blake2b(repr(condition).encode(), digest_size=16).digest()
        cached = self._known.get(key)
        age = float("inf") if cached is None or fresh else time.monotonic() - cached[0]
        if cached is None or age > MAX_TOTAL_AGE_SECONDS:
            return await self._count(key, condition, options)
        if age > RECOUNT_AFTER_SECONDS:
            if (
                await self._devices.count_documents(condition, limit=MIN_CACHED_TOTAL, **options)
                < MIN_CACHED_TOTAL
            ):
                return await self._count(key, condition, options)
            self._counting.start(key, partial(self._recount, key, condition, options))
        return cached[1]

    async def _count(self, key: bytes, condition: dict[str, Any], options: dict[str, Any]) -> T:
        result = await self._counted(condition, **options)
        if self._size(result) >= MIN_CACHED_TOTAL:
            self._known.put(key, (time.monotonic(), result))
        else:
            self._known.pop(key)
        return result

    async def _recount(
        self, key: bytes, condition: dict[str, Any], options: dict[str, Any]
    ) -> None:
        await self._count(key, condition, options)


SortFields = list[tuple[str, int]]
"""Stored fields, each with 1 (ascending) or -1 (descending)."""

INTEGRATION_NAME_FIELD = "integrationName"
"""Field of `SortFields` that sorts by the name of the integration, which devices do not store."""
FEW_DEVICES, MANY_DEVICES = 1_000, 10_000
"""Limits up to which the devices with an ngram are counted. An ngram that `MANY_DEVICES` devices
have is not used to find a page, unless `NGRAM_INDEX` has the order of the page."""
CACHE_SIZE = 10_000
"""Searches whose totals are cached."""
DEVICES_PER_QUERY = 1_000
"""Devices of a page that are read in one query."""
DeviceStream = AsyncGenerator[Device, None]
WITHOUT_NGRAMS = {"grams": 0}
"""The projection that omits ngrams, for a document that is read as a `Device`."""


@dataclass(frozen=True, slots=True)
class IndexFilter:
    """A filter that an index can answer: its conditions use fields of the index only.

    A device meets the filter if it meets any of the conditions. They are counted one by one,
    because MongoDB reads documents for a list of values of an array field.
    """

    index: str
    conditions: Sequence[Condition]


@dataclass(frozen=True, slots=True)
class PageQuery:
    """A page of the devices that match `filter`, in `order`."""

    filter: Condition
    order: SortFields
    skip: int
    limit: int
    hint: str | None = None
    """The index to use where MongoDB would choose another one."""
    texts: Sequence[str] = ()
    """Texts that the name or the SN of every match contains, in any case."""
    scope: Condition = field(default_factory=dict)
    """Tenant and, for applications, `application.applicationId`; also part of the filter."""
    index_filters: Sequence[IndexFilter] = ()
    """Parts of the filter that an index can answer."""
    order_index: str | None = None
    """The index that has the order; if given, the cheapest index is chosen by counting."""
    integrations: Sequence[str] = ()
    """All integrations ordered by name, to sort by `INTEGRATION_NAME_FIELD`."""

    @property
    def sorts_by_integration(self) -> bool:
        """Return whether the order includes the names of integrations."""
        return any(name == INTEGRATION_NAME_FIELD for name, _ in self.order)


async def list_ids_sorted_by_integration(devices: Collection, query: PageQuery) -> list[int]:
    """Return the device ids of a page that is sorted by integration name.

    MongoDB reads every match, because no index has this order.
    """
    place = {
        "$indexOfArray": [
            list(query.integrations),
            {"$ifNull": ["$integration", DIRECT_INTEGRATION]},
        ]
    }
    stages: list[Condition] = [
        {"$match": query.filter},
        {"$addFields": {INTEGRATION_NAME_FIELD: place}},
        {"$sort": dict(query.order)},
        {"$skip": query.skip},
        *([{"$limit": query.limit}] if query.limit else []),
        {"$project": {"_id": 1}},
    ]
    return [row["_id"] async for row in await devices.aggregate(stages)]


class DeviceSearch:
    """Finds pages of devices."""

    def __init__(self, devices: Collection) -> None:
        self._devices = devices
        self._totals = CachedCounter(devices, devices.count_documents, int, CACHE_SIZE)

    async def find(
        self, query: PageQuery, counted: Sequence[Condition] | None = None
    ) -> tuple[DeviceStream, int]:
        """Return the page that `query` describes, and the total number of matches.

        If given, `counted` are disjoint conditions that together match the same devices as the
        filter of `query`. Their totals may be counted instead, which is faster.
        """
        conditions = counted or [query.filter]
        if query.sorts_by_integration:
            ids, totals = await asyncio.gather(
                list_ids_sorted_by_integration(self._devices, query),
                asyncio.gather(*map(self._totals.count, conditions)),
            )
            return self._iterate_by_ids(ids), sum(totals)
        ngrams = select_ngrams(query.texts)
        if query.order_index is not None and (query.index_filters or ngrams):
            return await self._find_by_index(query, ngrams)
        hint = NGRAM_INDEX if ngrams else None
        if ngrams:
            ngram, number = await self._find_rarest(query.scope, ngrams)
            conditions = [_add_ngram(ngram, condition) for condition in conditions]
            ordered = (
                query.order[0][0] == "_id" and len(query.scope) > 1 and len(ngram) == NGRAM_LENGTH
            )
            if ordered or number < MANY_DEVICES:
                query = replace(query, filter=_add_ngram(ngram, query.filter), hint=NGRAM_INDEX)
        page, totals = await asyncio.gather(
            self._page(query),
            asyncio.gather(*(self._totals.count(condition, hint) for condition in conditions)),
        )
        return page, sum(totals)

    async def _find_by_index(
        self, query: PageQuery, ngrams: Sequence[str]
    ) -> tuple[DeviceStream, int]:
        """Find a page with the index that needs to read the fewest devices.

        MongoDB itself would reuse the plan of the first search of a kind for any other values.
        """
        filters = query.index_filters
        numbers = await asyncio.gather(
            *(self._count_matches_up_to_limit(query, index_filter) for index_filter in filters)
        )
        index_filters = zip(numbers, (index_filter.index for index_filter in filters), strict=True)
        number, index = min(index_filters, key=itemgetter(0), default=(sys.maxsize, NGRAM_INDEX))
        rare = None
        if not query.index_filters:
            rare = await self._find_rarest(query.scope, ngrams)
        elif ngrams and number > FEW_DEVICES:
            rare = await self._find_rare(query.scope, ngrams)
        if rare is not None:
            ngram, having = rare
            if having < number:
                number, index = having, NGRAM_INDEX
                query = replace(query, filter=_add_ngram(ngram, query.filter))
        if number < MANY_DEVICES:
            if _is_single_filter(query):
                return await self._page(replace(query, hint=index)), number
            return await self._find_with_total(query, index)
        total = await self._totals.count(query.filter, index)
        if total <= query.skip:
            return iterate_rows([]), total
        everybody = await self._totals.count(query.scope)
        walked = (query.skip + query.limit) * everybody // total
        if query.order[0][0] == "name" and query.texts:
            walked = everybody - total  # matching names may be adjacent at the end of the order
        hint = query.order_index if walked < max(number, total) else index
        return await self._page(replace(query, hint=hint)), total

    async def _find_with_total(self, query: PageQuery, index: str) -> tuple[DeviceStream, int]:
        """Return the page and the total with one query on an index."""
        part = {"$slice": ["$ids", query.skip, query.limit]}
        stages: list[Condition] = [
            {"$match": query.filter},
            {"$sort": dict(query.order)},
            {"$group": {"_id": None, "total": {"$sum": 1}, "ids": {"$push": "$_id"}}},
            {"$project": {"total": 1, "ids": part}},
        ]
        rows = await self._devices.aggregate(stages, hint=index)
        async for row in rows:
            return self._iterate_by_ids(row["ids"]), row["total"]
        return iterate_rows([]), 0

    async def _count_matches_up_to_limit(self, query: PageQuery, index_filter: IndexFilter) -> int:
        """Return how many devices an index filter matches, at most `MANY_DEVICES` per condition."""
        counts = (
            self._devices.count_documents(
                {**query.scope, **condition}, limit=MANY_DEVICES, hint=index_filter.index
            )
            for condition in index_filter.conditions
        )
        return sum(await asyncio.gather(*counts))

    async def _find_rarest(self, scope: Condition, ngrams: Sequence[str]) -> tuple[str, int]:
        """Return the ngram that the fewest devices have, and their number or `MANY_DEVICES`."""
        rare = await self._find_rare(scope, ngrams)
        if rare is not None:
            return rare
        if len(ngrams) == 1:
            return ngrams[0], MANY_DEVICES
        reached = await asyncio.gather(
            *(self._position_at_limit({**_ngram_condition(ngram), **scope}) for ngram in ngrams)
        )
        return max(zip(reached, ngrams, strict=True))[1], MANY_DEVICES

    async def _find_rare(self, scope: Condition, ngrams: Sequence[str]) -> tuple[str, int] | None:
        """Return the rarest ngram and how many devices have it; None if `MANY_DEVICES` or more."""
        for maximum in (FEW_DEVICES, MANY_DEVICES):
            counts = await asyncio.gather(
                *(
                    self._devices.count_documents(
                        {**_ngram_condition(ngram), **scope}, limit=maximum, hint=NGRAM_INDEX
                    )
                    for ngram in ngrams
                )
            )
            number, ngram = min(zip(counts, ngrams, strict=True))
            if number < maximum:
                return ngram, number
        return None

    async def _position_at_limit(self, query: Condition) -> tuple[int, int]:
        """Return application and id of match number `MANY_DEVICES`; rarer ngrams reach it later."""
        application = "application.applicationId"
        order = [(application, 1), ("_id", 1)]
        row = await self._devices.find_one(
            query, {application: 1}, sort=order, skip=MANY_DEVICES - 1, hint=NGRAM_INDEX
        )
        if row is None:
            return sys.maxsize, 0
        return (row.get("application") or {}).get("applicationId", 0), row["_id"]

    async def _page(self, query: PageQuery) -> DeviceStream:
        """Return the devices of a page; for skipped devices read only ids from the index."""
        page: dict[str, Any] = {"sort": query.order, "skip": query.skip, "limit": query.limit}
        if query.hint:
            page["hint"] = query.hint
        if not query.skip and 0 < query.limit <= DEVICES_PER_QUERY:
            return iterate_rows(
                await _read(self._devices.find(query.filter, WITHOUT_NGRAMS, **page))
            )
        keys = self._devices.find(query.filter, {"_id": 1}, **page)
        return self._iterate_by_ids([key["_id"] async for key in keys])

    async def _iterate_by_ids(self, ids: Sequence[int]) -> DeviceStream:
        """Yield devices in the order of ids, read in parts."""
        for start in range(0, len(ids), DEVICES_PER_QUERY):
            part = ids[start : start + DEVICES_PER_QUERY]
            devices = await _read(self._devices.find({"_id": {"$in": part}}, WITHOUT_NGRAMS))
            devices_by_id = {device.id: device for device in devices}
            for device_id in part:
                if device_id in devices_by_id:
                    yield devices_by_id[device_id]


def _is_single_filter(query: PageQuery) -> bool:
    """Return whether the filter is one condition, which its only index filter counts exactly."""
    conditions = query.filter.get("$and", ())
    return len(conditions) == 1 and [
        len(index_filter.conditions) for index_filter in query.index_filters
    ] == [1]


async def _read(cursor: Any) -> list[Device]:
    return msgspec.convert(await cursor.to_list(None), list[Device])


def _add_ngram(ngram: str, condition: Condition) -> Condition:
    """Add an ngram to a condition; devices whose ngrams are not stored yet match too.

    With `None` in an `$in` list MongoDB would read the ngrams of every device it finds.
    """
    return {"$and": [{"$or": [_ngram_condition(ngram), {"grams": {"$exists": False}}]}, condition]}


def _ngram_condition(ngram: str) -> Condition:
    """Return the condition that a device has `ngram`, or an ngram that begins with it."""
    return {"grams": ngram if len(ngram) == NGRAM_LENGTH else Regex("^" + literal_pattern(ngram))}
