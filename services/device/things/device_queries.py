"""Lists of devices: some fields of many, ids, and how many there are."""

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from collections.abc import Collection as Some
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.store.mongo import Collection, Document, Session
from libs.common.things import DIRECT
from services.device.things.device_search import Order, Query, Totals, ids_by_integration
from services.device.things.model import ListedDevice, ModelKey, model_key, stored_fields
from services.device.things.visibility import Condition, all_of

LARGEST_BATCH = 1000
"""Most devices of one answer of MongoDB while they are walked through."""
KEPT, MODELS = 100, 1_000
"""Searches whose counts by model are remembered, and the most models of one."""
_LISTED = stored_fields(ListedDevice)
_LISTED_FORM = list[ListedDevice]
_MODEL = ("model", "tslVersion", "shape", "entityNames")
"""The fields of a `ModelKey`."""


@dataclass(frozen=True, slots=True)
class CountedModel:
    """Devices of one integration and model."""

    integration: str
    model: ModelKey
    devices: int


class DeviceLists:
    """Lists and counts devices."""

    def __init__(self, devices: Collection) -> None:
        self._devices = devices
        self._models = Totals(devices, self._count_models, _worth, KEPT)

    async def listed(self, tenant: str, ids: Iterable[int]) -> list[ListedDevice]:
        """Devices of the tenant by id."""
        query = {"_id": {"$in": list(ids)}, "tenant": tenant}
        found = await self._devices.find(query, _LISTED).to_list(None)
        return msgspec.convert(found, _LISTED_FORM)

    async def listed_with(
        self, tenant: str, integration: str, identifiers: Iterable[str]
    ) -> list[ListedDevice]:
        """Devices by what their integration calls them."""
        some = {"$in": list(identifiers)}
        query = {"tenant": tenant, "integration": integration, "identifier": some}
        found = await self._devices.find(query, _LISTED).to_list(None)
        return msgspec.convert(found, _LISTED_FORM)

    async def applications(self, tenant: str) -> list[int]:
        """The applications that have devices."""
        name = "application.applicationId"
        found = await self._devices.distinct(name, {"tenant": tenant, name: {"$ne": None}})
        return list(found)

    async def is_used(self, tenant: str, model: str, version: str | None, session: Session) -> bool:
        """Return whether a device is of a product, or of a version of it."""
        query = {"tenant": tenant, "model": model}
        if version is not None:
            query["tslVersion"] = version
        return await self._devices.find_one(query, {"_id": 1}, session=session) is not None

    async def walk(
        self,
        tenant: str,
        conditions: Sequence[Condition],
        order: Order,
        *,
        skip: int,
        expected: int,
        hint: str | None,
    ) -> AsyncGenerator[ListedDevice, None]:
        """Devices that meet all conditions, in order; some `expected` of them will be read."""
        options: dict[str, Any] = {"hint": hint} if hint else {}
        cursor = self._devices.find(
            all_of(tenant, conditions),
            _LISTED,
            sort=order,
            skip=skip,
            batch_size=max(min(expected + 1, LARGEST_BATCH), 2),
            **options,
        )
        try:
            async for document in cursor:
                yield msgspec.convert(document, ListedDevice)
        finally:
            await cursor.close()

    async def count_models(
        self, tenant: str, conditions: Sequence[Condition], *, anew: bool
    ) -> Counter[ModelKey]:
        """How many devices meet all conditions, by model: `anew`, or lately where they are many."""
        few = any("_id" in condition or "group" in condition for condition in conditions)
        hint = None if few else "members"
        return await self._models.of(all_of(tenant, conditions), hint, anew=anew)

    async def _count_models(self, condition: Condition, **options: Any) -> Counter[ModelKey]:
        found: Counter[ModelKey] = Counter()
        async for group in await self._devices.aggregate(
            [{"$match": condition}, _grouped(*_MODEL)], **options
        ):
            found[_model_of(group)] += group["devices"]
        return found

    async def counted_models(self, tenant: str) -> list[CountedModel]:
        """The devices of a tenant, counted by integration and model."""
        grouped = _grouped("integration", *_MODEL)
        groups = await self._devices.aggregate([{"$match": {"tenant": tenant}}, grouped])
        return [
            CountedModel(
                group["_id"].get("integration", DIRECT), _model_of(group), group["devices"]
            )
            async for group in groups
        ]

    async def integrations(self, tenant: str) -> list[str]:
        """The integrations that devices of the tenant belong to."""
        return list(await self._devices.distinct("integration", {"tenant": tenant}))

    async def find_documents(
        self, query: Query, fields: Mapping[str, int], *, counted: bool
    ) -> tuple[list[Document], int]:
        """Some fields of a page, and where it is `counted` how many devices match."""
        if query.by_integration:
            ids = await ids_by_integration(self._devices, query)
            page = self._devices.find({"_id": {"$in": ids}}, fields)
            rows = {row["_id"]: row for row in await page.to_list(None)}
            found = [rows[one] for one in ids if one in rows]
        else:
            page = self._devices.find(
                query.filter, fields, sort=query.order, skip=query.skip, limit=query.limit
            )
            found = await page.to_list(None)
        return found, await self._devices.count_documents(query.filter) if counted else 0

    async def count_groups(
        self, tenant: str, groups: Some[int], condition: Condition
    ) -> dict[int, int]:
        """How many devices of groups meet a condition, by group; one that has none is missing."""
        query = all_of(tenant, [{"group": {"$in": list(groups)}}, condition])
        counted = {"$group": {"_id": "$group", "devices": {"$sum": 1}}}
        rows = await self._devices.aggregate([{"$match": query}, counted], hint="group")
        return {row["_id"]: row["devices"] async for row in rows}

    async def tenants(self) -> list[str]:
        """The tenants that have devices."""
        return list(await self._devices.distinct("tenant"))

    async def tenants_of(self, ids: Iterable[int]) -> dict[int, str]:
        """The tenants of devices, by id."""
        found = self._devices.find({"_id": {"$in": list(ids)}}, {"tenant": 1})
        return {device["_id"]: device["tenant"] async for device in found}

    async def models_after(
        self, tenant: str, models: Some[str] | None, after: int, limit: int
    ) -> list[tuple[int, str]]:
        """Devices by id behind `after` with their product; of all products, or of `models`."""
        query: Condition = {"tenant": tenant, "_id": {"$gt": after}}
        if models is not None:
            query["model"] = {"$in": list(models)}
        found = self._devices.find(query, {"model": 1}, sort=[("_id", 1)], limit=limit)
        return [(one["_id"], one["model"]) async for one in found]

    async def of_product(self, tenant: str, model: str, after: int, limit: int) -> list[int]:
        """Ids of the devices of a product behind an id, in order."""
        query = {"tenant": tenant, "model": model, "_id": {"$gt": after}}
        found = self._devices.find(query, {"_id": 1}, sort=[("_id", 1)], limit=limit)
        return [one["_id"] async for one in found]

    async def not_erased(
        self, tenant: str, model: str, version: str, content: str, limit: int
    ) -> list[tuple[int, str]]:
        """Ids and SNs of devices of a TSL that may have values which its `content` conceals."""
        query = {"tenant": tenant, "model": model, "tslVersion": version}
        query |= {"erased": {"$ne": content}}  # type: ignore[dict-item]
        found = self._devices.find(query, {"sn": 1}, limit=limit)
        return [(one["_id"], one["sn"]) async for one in found]

    async def ids_that(self, tenant: str, condition: Condition) -> list[int]:
        """Ids of the devices that meet a condition of grants."""
        query = {"tenant": tenant, **condition}
        return [one["_id"] async for one in self._devices.find(query, {"_id": 1})]


def _grouped(*fields: str) -> Condition:
    """The stage that counts devices by fields."""
    return {"$group": {"_id": {name: f"${name}" for name in fields}, "devices": {"$sum": 1}}}


def _worth(counts: Counter[ModelKey]) -> int:
    """Devices that counts save counting, as long as they are small themselves."""
    return counts.total() if len(counts) <= MODELS else 0


def _model_of(group: Document) -> ModelKey:
    return model_key(*map(group["_id"].get, _MODEL))
