"""Queries on many devices: selected fields, ids and counts."""

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.store.mongo import Collection, Document, Session
from libs.common.things import DIRECT_INTEGRATION
from services.device.things.device_search import (
    WITHOUT_NGRAMS,
    CachedCounter,
    PageQuery,
    SortFields,
    list_ids_sorted_by_integration,
)
from services.device.things.model import (
    Device,
    ListedDevice,
    MemberSetKey,
    device_from_document,
    member_set_key,
    projection_for,
)
from services.device.things.visibility import (
    Condition,
    combine_conditions,
    identifier_condition,
    owner_condition,
)

MAX_CURSOR_BATCH = 1000
"""Maximum devices that MongoDB returns in one batch of a cursor."""
CACHE_SIZE, MAX_MEMBER_SETS = 100, 1_000
"""Maximum searches whose counts by member set are cached, and maximum member sets of a cached
count."""
_LISTED_PROJECTION = projection_for(ListedDevice)
_LISTED_DEVICES = list[ListedDevice]
_MEMBER_SET_KEY_FIELDS = ("model", "tslVersion", "shape", "entityNames")
"""The stored fields that identify a `MemberSetKey`."""


@dataclass(frozen=True, slots=True)
class MemberSetCount:
    """The number of devices of one integration and member set."""

    integration: str
    member_set: MemberSetKey
    devices: int


ADD_TSL_HASH_STAGES: list[Document] = [
    {"$set": {"tsl": {"tenant": "$tenant", "model": "$model", "version": "$tslVersion"}}},
    {
        "$lookup": {
            "from": "tsls",
            "localField": "tsl",
            "foreignField": "_id",
            "pipeline": [{"$project": {"_id": 0, "hash": 1}}],
            "as": "tsl",
        }
    },
]
"""Stages that set `tsl` of a device to `[{hash}]`, its TSL's content hash; `[]` without a TSL."""


class DeviceQueries:
    """Lists and counts devices."""

    def __init__(self, devices: Collection) -> None:
        self._devices = devices
        self._counts_by_member_set = CachedCounter(
            devices, self._count_by_member_set, _count_devices, CACHE_SIZE
        )

    async def list_by_ids(self, tenant: str, ids: Iterable[int]) -> list[ListedDevice]:
        """Return the devices of the tenant with these ids."""
        query = {"_id": {"$in": list(ids)}, "tenant": tenant}
        documents = await self._devices.find(query, _LISTED_PROJECTION).to_list(None)
        return msgspec.convert(documents, _LISTED_DEVICES)

    async def list_by_identifiers(
        self, tenant: str, integration: str, identifiers: Iterable[str]
    ) -> list[ListedDevice]:
        """Return the devices with these identifiers of their integration."""
        query = identifier_condition(tenant, integration, identifiers)
        documents = await self._devices.find(query, _LISTED_PROJECTION).to_list(None)
        return msgspec.convert(documents, _LISTED_DEVICES)

    async def find_with_tsl_hash(
        self, tenant: str, device_id: int, application_id: int | None = None
    ) -> tuple[Device, str | None] | None:
        """Return a device like `DeviceStore.find`, with the content hash of its TSL, if any."""
        stages: list[Document] = [
            {"$match": owner_condition(tenant, device_id, application_id)},
            {"$project": WITHOUT_NGRAMS},
            *ADD_TSL_HASH_STAGES,
        ]
        async for document in await self._devices.aggregate(stages):
            return device_from_document(document), next(
                (version["hash"] for version in document["tsl"]), None
            )
        return None

    async def list_by_application(
        self, tenant: str, application_id: int, limit: int
    ) -> list[Device]:
        """Return up to `limit` devices of an application."""
        query = {"tenant": tenant, "application.applicationId": application_id}
        cursor = self._devices.find(query, WITHOUT_NGRAMS, limit=limit)
        return msgspec.convert(await cursor.to_list(), list[Device])

    async def list_by_integration(self, integration: str, after: int, limit: int) -> list[Device]:
        """Return up to `limit` devices of an integration in all tenants, by ascending id.

        Only devices with ids above `after` are returned.
        """
        query = {"integration": integration, "_id": {"$gt": after}}
        cursor = self._devices.find(query, WITHOUT_NGRAMS, sort=[("_id", 1)], limit=limit)
        return msgspec.convert(await cursor.to_list(), list[Device])

    async def list_applications(self, tenant: str) -> list[int]:
        """Return the ids of the applications that own devices of the tenant."""
        name = "application.applicationId"
        found = await self._devices.distinct(name, {"tenant": tenant, name: {"$ne": None}})
        return list(found)

    async def is_product_used(
        self, tenant: str, model: str, version: str | None, session: Session
    ) -> bool:
        """Return whether a device has this product and, if given, version."""
        query = {"tenant": tenant, "model": model}
        if version is not None:
            query["tslVersion"] = version
        return await self._devices.find_one(query, {"_id": 1}, session=session) is not None

    async def iterate(
        self,
        tenant: str,
        conditions: Sequence[Condition],
        order: SortFields,
        *,
        skip: int,
        expected: int,
        hint: str | None,
    ) -> AsyncGenerator[ListedDevice, None]:
        """Yield the devices of a tenant that meet all conditions, in `order`, after `skip` of them.
        `expected` is the number of devices that the caller will probably read, `hint` the index to
        use.
        """
        options: dict[str, Any] = {"hint": hint} if hint else {}
        cursor = self._devices.find(
            combine_conditions(tenant, conditions),
            _LISTED_PROJECTION,
            sort=order,
            skip=skip,
            batch_size=max(min(expected + 1, MAX_CURSOR_BATCH), 2),
            **options,
        )
        try:
            async for document in cursor:
                yield msgspec.convert(document, ListedDevice)
        finally:
            await cursor.close()

    async def count_by_member_set(
        self, tenant: str, conditions: Sequence[Condition], *, fresh: bool
    ) -> Counter[MemberSetKey]:
        """Count the devices that meet all conditions, by member set.

        Large counts may be up to `MAX_TOTAL_AGE_SECONDS` old, unless `fresh`.
        """
        few = any("_id" in condition or "group" in condition for condition in conditions)
        hint = None if few else "members"
        return await self._counts_by_member_set.count(
            combine_conditions(tenant, conditions), hint, fresh=fresh
        )

    async def _count_by_member_set(
        self, condition: Condition, **options: Any
    ) -> Counter[MemberSetKey]:
        counts: Counter[MemberSetKey] = Counter()
        async for group in await self._devices.aggregate(
            [{"$match": condition}, _group_stage(*_MEMBER_SET_KEY_FIELDS)], **options
        ):
            counts[_member_set_key_of_group(group)] += group["devices"]
        return counts

    async def count_member_sets_by_integration(self, tenant: str) -> list[MemberSetCount]:
        """Count the devices of a tenant by integration and member set."""
        grouped = _group_stage("integration", *_MEMBER_SET_KEY_FIELDS)
        groups = await self._devices.aggregate([{"$match": {"tenant": tenant}}, grouped])
        return [
            MemberSetCount(
                group["_id"].get("integration", DIRECT_INTEGRATION),
                _member_set_key_of_group(group),
                group["devices"],
            )
            async for group in groups
        ]

    async def list_integrations(self, tenant: str) -> list[str]:
        """Return the integrations of the devices of a tenant."""
        return list(await self._devices.distinct("integration", {"tenant": tenant}))

    async def find_documents(
        self, query: PageQuery, fields: Mapping[str, int], *, counted: bool
    ) -> tuple[list[Document], int]:
        """Return the `fields` of a page of devices, and the total if `counted`, otherwise 0."""
        if query.sorts_by_integration:
            ids = await list_ids_sorted_by_integration(self._devices, query)
            page = self._devices.find({"_id": {"$in": ids}}, fields)
            rows = {row["_id"]: row for row in await page.to_list(None)}
            page_rows = [rows[device_id] for device_id in ids if device_id in rows]
        else:
            page = self._devices.find(
                query.filter, fields, sort=query.order, skip=query.skip, limit=query.limit
            )
            page_rows = await page.to_list(None)
        return page_rows, await self._devices.count_documents(query.filter) if counted else 0

    async def count_by_group(
        self, tenant: str, groups: Iterable[int], condition: Condition
    ) -> dict[int, int]:
        """Return, by group, how many devices meet a condition; omit groups in which none does."""
        query = combine_conditions(tenant, [{"group": {"$in": list(groups)}}, condition])
        counted = {"$group": {"_id": "$group", "devices": {"$sum": 1}}}
        rows = await self._devices.aggregate([{"$match": query}, counted], hint="group")
        return {row["_id"]: row["devices"] async for row in rows}

    async def list_tenants(self) -> list[str]:
        """Return the tenants that have devices."""
        return list(await self._devices.distinct("tenant"))

    async def find_tenants(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the tenants of devices by device id."""
        cursor = self._devices.find({"_id": {"$in": list(ids)}}, {"tenant": 1})
        return {device["_id"]: device["tenant"] async for device in cursor}

    async def list_ids_with_models(
        self, tenant: str, models: Iterable[str] | None, after: int, limit: int
    ) -> list[tuple[int, str]]:
        """Return up to `limit` pairs of device id and model, for ids above `after`.

        With `models` only devices of these products are returned.
        """
        query: Condition = {"tenant": tenant, "_id": {"$gt": after}}
        if models is not None:
            query["model"] = {"$in": list(models)}
        cursor = self._devices.find(query, {"model": 1}, sort=[("_id", 1)], limit=limit)
        return [(device["_id"], device["model"]) async for device in cursor]

    async def list_ids_of_product(
        self, tenant: str, model: str, after: int, limit: int
    ) -> list[int]:
        """Return up to `limit` ids of devices of a product, ascending, from those above `after`."""
        query = {"tenant": tenant, "model": model, "_id": {"$gt": after}}
        cursor = self._devices.find(query, {"_id": 1}, sort=[("_id", 1)], limit=limit)
        return [device["_id"] async for device in cursor]

    async def list_with_write_only_values(
        self, tenant: str, model: str, version: str, tsl_hash: str, limit: int
    ) -> list[tuple[int, str]]:
        """Return ids and SNs of up to `limit` devices that may still hold write-only values.

        `tsl_hash` is the content hash of TSL version `version`, which makes the values write-only.
        """
        query = {"tenant": tenant, "model": model, "tslVersion": version}
        query |= {"erased": {"$ne": tsl_hash}}  # type: ignore[dict-item]
        cursor = self._devices.find(query, {"sn": 1}, limit=limit)
        return [(device["_id"], device["sn"]) async for device in cursor]

    async def list_granted_ids(self, tenant: str, condition: Condition) -> list[int]:
        """Return the ids of the devices that meet a condition of grants."""
        query = {"tenant": tenant, **condition}
        return [device["_id"] async for device in self._devices.find(query, {"_id": 1})]


def _group_stage(*fields: str) -> Condition:
    return {"$group": {"_id": {name: f"${name}" for name in fields}, "devices": {"$sum": 1}}}


def _count_devices(counts: Counter[MemberSetKey]) -> int:
    """Return the number of counted devices; 0 for more than `MAX_MEMBER_SETS` sets.

    The cache keeps only counts of many devices. With 0 it does not keep counts of too many sets.
    """
    return counts.total() if len(counts) <= MAX_MEMBER_SETS else 0


def _member_set_key_of_group(group: Document) -> MemberSetKey:
    return member_set_key(*map(group["_id"].get, _MEMBER_SET_KEY_FIELDS))
