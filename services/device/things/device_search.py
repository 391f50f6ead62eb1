"""Search for devices: text search, pages and totals.

Grams: the runs of four characters by which text in a device's name or SN is found.

A document has those of its name and of its SN (`grams`), without regard to case, and the last
three characters of each. An index has them in the order of ids. What contains a text has all of
its grams, so a search looks at the devices that have the rarest one, and the regular expression
decides. A text of three characters is the beginning of a gram.

MongoDB's expressions compare without regard to case as `folded` does, or more strictly: tried
with every character that has a case.
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
from libs.common.things import DIRECT
from services.device.things.model import Device
from services.device.things.visibility import Condition

LENGTH, SHORTEST = 4, 3
"""Characters of a gram, and of the last one of a text."""
INDEX = "text"
"""Of `grams`, tenant, application and id."""
MOST = 8
"""Grams of a text that are looked at to find a rare one."""


def folded(text: str) -> str:
    """`text` in the form that all its spellings in upper and lower case have."""
    return text.upper().casefold()


def grams_of(*texts: str) -> list[str]:
    """What a device of these texts is found by, in order."""
    return sorted({gram for text in texts for gram in _runs(folded(text), SHORTEST)})


def wanted_grams(texts: Iterable[str]) -> list[str]:
    """At most `MOST` grams that a device with all of these texts has, from all over them.

    When no text is long enough, the beginning of a gram; none where all are too short.
    """
    forms = [folded(text) for text in texts]
    found = list(dict.fromkeys(gram for form in forms for gram in _runs(form, LENGTH)))
    if len(found) > MOST:
        return [found[at * len(found) // MOST] for at in range(MOST)]
    return found or [form for form in forms if len(form) == SHORTEST][:1]


def _runs(form: str, shortest: int) -> Iterable[str]:
    return (form[at : at + LENGTH] for at in range(len(form) - shortest + 1))


T = TypeVar("T")

EXACT = 10_000
"""Up to this a total is not remembered (some 5 ms); of a million it takes 0.3 s."""
FRESH = 10.0
"""Seconds after which a larger one is counted anew, beside the answer while it still is larger."""
OLDEST = 300.0
"""Seconds after which it is waited for."""


class Totals(Generic[T]):
    """Counts devices; one of a kind per process.

    `count` is given a condition, and `hint` where there is one; `size` says how many it counted.
    The totals of `kept` searches are remembered.
    """

    def __init__(
        self,
        devices: Collection,
        count: Callable[..., Awaitable[T]],
        size: Callable[[T], int],
        kept: int,
    ) -> None:
        self._devices = devices
        self._counted = count
        self._size = size
        self._known: LruCache[bytes, tuple[float, T]] = LruCache(kept)
        self._counting = NamedTasks()

    async def of(
        self, condition: dict[str, Any], hint: str | None = None, *, anew: bool = False
    ) -> T:
        """The devices that meet a condition; above `EXACT` as of a moment ago, unless `anew`."""
        options: dict[str, Any] = {"hint": hint} if hint else {}
        key = blake2b(repr(condition).encode(), digest_size=16).digest()
        known = self._known.get(key)
        age = float("inf") if known is None or anew else time.monotonic() - known[0]
        if known is None or age > OLDEST:
            return await self._count(key, condition, options)
        if age > FRESH:
            if await self._devices.count_documents(condition, limit=EXACT, **options) < EXACT:
                return await self._count(key, condition, options)
            self._counting.begin(key, partial(self._recount, key, condition, options))
        return known[1]

    async def _count(self, key: bytes, condition: dict[str, Any], options: dict[str, Any]) -> T:
        found = await self._counted(condition, **options)
        if self._size(found) >= EXACT:
            self._known.put(key, (time.monotonic(), found))
        else:
            self._known.pop(key)
        return found

    async def _recount(
        self, key: bytes, condition: dict[str, Any], options: dict[str, Any]
    ) -> None:
        await self._count(key, condition, options)


Order = list[tuple[str, int]]
"""Stored fields, each with 1 or -1."""

INTEGRATION_NAME = "integrationName"
"""An order that devices do not store: that of the names of their integrations."""
FEW, MANY = 1_000, 10_000
"""Numbers up to which devices with a gram are counted, as long as no gram has fewer. With `MANY`
it does not lead to a page, unless its index has the order: to walk that takes no longer."""
KEPT = 10_000
"""Searches whose totals are remembered."""
READ_TOGETHER = 1_000
"""Devices of a page that are read at a time."""
Devices = AsyncGenerator[Device, None]
WHOLE = {"grams": 0}
"""What of a document is read as a `Device`."""


@dataclass(frozen=True, slots=True)
class Lead:
    """A filter that an index leads to: `conditions` are on fields of the index alone.

    A device that meets the filter meets any of them; they are counted one by one, because in a
    list of values on a field that is an array MongoDB reads documents.
    """

    index: str
    conditions: Sequence[Condition]


@dataclass(frozen=True, slots=True)
class Query:
    """A page of the devices that match `filter`, in `order`."""

    filter: Condition
    order: Order
    skip: int
    limit: int
    hint: str | None = None
    """The index to use, when MongoDB would not choose it."""
    texts: Sequence[str] = ()
    """Each is in the name or the SN of all devices that match, in upper or lower case."""
    scope: Condition = field(default_factory=dict)
    """`tenant`, and for an application `application.applicationId`: they are in the filter too."""
    leads: Sequence[Lead] = ()
    """Filters that an index leads to."""
    walk: str | None = None
    """The index that has the order; where it is said, what finds the page is chosen by numbers."""
    integrations: Sequence[str] = ()
    """All integrations in the order of their names, for an order by `INTEGRATION_NAME`."""

    @property
    def by_integration(self) -> bool:
        """Whether the order is one that `ids_by_integration` has to make."""
        return any(name == INTEGRATION_NAME for name, _ in self.order)


async def ids_by_integration(devices: Collection, query: Query) -> list[int]:
    """Return the ids of a page whose order has the names of integrations.

    MongoDB looks at every device that matches: no index has such an order.
    """
    place = {"$indexOfArray": [list(query.integrations), {"$ifNull": ["$integration", DIRECT]}]}
    stages: list[Condition] = [
        {"$match": query.filter},
        {"$addFields": {INTEGRATION_NAME: place}},
        {"$sort": dict(query.order)},
        {"$skip": query.skip},
        *([{"$limit": query.limit}] if query.limit else []),
        {"$project": {"_id": 1}},
    ]
    return [row["_id"] async for row in await devices.aggregate(stages)]


class DevicePages:
    """Finds pages of devices."""

    def __init__(self, devices: Collection) -> None:
        self._devices = devices
        self._totals = Totals(devices, devices.count_documents, int, KEPT)

    async def find(
        self, query: Query, counted: Sequence[Condition] | None = None
    ) -> tuple[Devices, int]:
        """The page that `query` describes, and how many devices match in all.

        `counted` are conditions of which every device of the whole list meets exactly one.
        """
        conditions = counted or [query.filter]
        if query.by_integration:
            ids, totals = await asyncio.gather(
                ids_by_integration(self._devices, query),
                asyncio.gather(*map(self._totals.of, conditions)),
            )
            return self._with_ids(ids), sum(totals)
        grams = wanted_grams(query.texts)
        if query.walk is not None and (query.leads or grams):
            return await self._led(query, grams)
        hint = None
        if grams:
            gram, number = await self._rarest(query.scope, grams)
            conditions, hint = [_having(gram, one) for one in conditions], INDEX
            ordered = query.order[0][0] == "_id" and len(query.scope) > 1 and len(gram) == LENGTH
            if ordered or number < MANY:
                query = replace(query, filter=_having(gram, query.filter), hint=INDEX)
        found, totals = await asyncio.gather(
            self._page(query),
            asyncio.gather(*(self._totals.of(condition, hint) for condition in conditions)),
        )
        return found, sum(totals)

    async def _led(self, query: Query, grams: Sequence[str]) -> tuple[Devices, int]:
        """The same by the filter that the fewest devices meet, or in order where that is less.

        MongoDB's own choice is that of the first search of a kind, whatever its values were.
        """
        numbers = await asyncio.gather(*(self._number(query, lead) for lead in query.leads))
        leads = zip(numbers, (lead.index for lead in query.leads), strict=True)
        number, index = min(leads, key=itemgetter(0), default=(sys.maxsize, INDEX))
        rare = None
        if not query.leads:
            rare = await self._rarest(query.scope, grams)
        elif grams and number > FEW:
            rare = await self._rare(query.scope, grams)
        if rare is not None:
            gram, having = rare
            if having < number:
                number, index = having, INDEX
                query = replace(query, filter=_having(gram, query.filter))
        if number < MANY:
            if _is_led(query):
                return await self._page(replace(query, hint=index)), number
            return await self._at_once(query, index)
        total = await self._totals.of(query.filter, index)
        if total <= query.skip:
            return iterate_rows([]), total
        everybody = await self._totals.of(query.scope)
        walked = (query.skip + query.limit) * everybody // total
        if query.order[0][0] == "name" and query.texts:
            walked = everybody - total  # names with a text may stand together, at the end
        hint = query.walk if walked < max(number, total) else index
        return await self._page(replace(query, hint=hint)), total

    async def _at_once(self, query: Query, index: str) -> tuple[Devices, int]:
        """The page and the total in one look at what an index leads to."""
        part = {"$slice": ["$ids", query.skip, query.limit]}
        stages: list[Condition] = [
            {"$match": query.filter},
            {"$sort": dict(query.order)},
            {"$group": {"_id": None, "total": {"$sum": 1}, "ids": {"$push": "$_id"}}},
            {"$project": {"total": 1, "ids": part}},
        ]
        rows = await self._devices.aggregate(stages, hint=index)
        async for row in rows:
            return self._with_ids(row["ids"]), row["total"]
        return iterate_rows([]), 0

    async def _number(self, query: Query, lead: Lead) -> int:
        """How many devices a lead has, up to `MANY` for each of its conditions."""
        counts = (
            self._devices.count_documents({**query.scope, **condition}, limit=MANY, hint=lead.index)
            for condition in lead.conditions
        )
        return sum(await asyncio.gather(*counts))

    async def _rarest(self, scope: Condition, grams: Sequence[str]) -> tuple[str, int]:
        """The gram that the fewest devices have, and how many, or that `MANY` have it."""
        rare = await self._rare(scope, grams)
        if rare is not None:
            return rare
        if len(grams) == 1:
            return grams[0], MANY
        reached = await asyncio.gather(*(self._reached({**_with(one), **scope}) for one in grams))
        return max(zip(reached, grams, strict=True))[1], MANY

    async def _rare(self, scope: Condition, grams: Sequence[str]) -> tuple[str, int] | None:
        """The gram that the fewest devices have, and how many; None when `MANY` have each."""
        for most in (FEW, MANY):
            counts = await asyncio.gather(
                *(
                    self._devices.count_documents({**_with(gram), **scope}, limit=most, hint=INDEX)
                    for gram in grams
                )
            )
            number, gram = min(zip(counts, grams, strict=True))
            if number < most:
                return gram, number
        return None

    async def _reached(self, query: Condition) -> tuple[int, int]:
        """Where the last of the first `MANY` devices with a gram stands: the later, the rarer."""
        order = [("application.applicationId", 1), ("_id", 1)]
        row = await self._devices.find_one(
            query, {"application.applicationId": 1}, sort=order, skip=MANY - 1, hint=INDEX
        )
        if row is None:
            return sys.maxsize, 0
        return (row.get("application") or {}).get("applicationId", 0), row["_id"]

    async def _page(self, query: Query) -> Devices:
        """The devices of a page; of what is skipped only the ids, which an index has in order."""
        page: dict[str, Any] = {"sort": query.order, "skip": query.skip, "limit": query.limit}
        if query.hint:
            page["hint"] = query.hint
        if not query.skip and 0 < query.limit <= READ_TOGETHER:
            return iterate_rows(await _read(self._devices.find(query.filter, WHOLE, **page)))
        keys = self._devices.find(query.filter, {"_id": 1}, **page)
        return self._with_ids([key["_id"] async for key in keys])

    async def _with_ids(self, ids: Sequence[int]) -> Devices:
        """Devices in the order of ids, some read at a time."""
        for start in range(0, len(ids), READ_TOGETHER):
            part = ids[start : start + READ_TOGETHER]
            devices = await _read(self._devices.find({"_id": {"$in": part}}, WHOLE))
            found = {device.id: device for device in devices}
            for device_id in part:
                if device_id in found:
                    yield found[device_id]


def _is_led(query: Query) -> bool:
    """Whether a filter asks for one condition, and a lead counts just that."""
    asked = query.filter.get("$and", ())
    return len(asked) == 1 and [len(lead.conditions) for lead in query.leads] == [1]


async def _read(cursor: Any) -> list[Device]:
    return msgspec.convert(await cursor.to_list(None), list[Device])


def _having(gram: str, condition: Condition) -> Condition:
    """The condition with a gram; a device that has none yet may have it.

    `None` among the values of `$in` would make MongoDB look at the grams of every device it finds.
    """
    return {"$and": [{"$or": [_with(gram), {"grams": {"$exists": False}}]}, condition]}


def _with(gram: str) -> Condition:
    """The condition that a device has a gram, or one that begins with this."""
    return {"grams": gram if len(gram) == LENGTH else Regex("^" + literal_pattern(gram))}
