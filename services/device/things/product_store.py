"""Products and their codecs in MongoDB.

currentVersion, versions, historyDays?, frameDays?, deviceOfflineTimeout?, locationProperty?,
codecVersion?, historyService?, healing?, createdAt, updatedAt}`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from libs.common.clock import to_ms
from libs.common.limits.quota import Quota
from libs.common.limits.tenants import LimitsCache
from libs.common.store.mongo import (
    Database,
    Document,
    DuplicateKey,
    Mongo,
    Session,
    require_document,
)
from services.device.things.device_store import DeviceStore
from services.device.things.errors import (
    prefix_taken,
    product_in_use,
    product_not_found,
    too_many_versions,
    version_in_use,
)
from services.device.things.migrations import HAS_PREFIXES
from services.device.things.product_model import Product, ProductCodec, PutHealing
from services.device.things.specifications import (
    MemberRegistry,
    ProductUsage,
    StoredTsl,
    Tsls,
    owner_of,
)


class CodecStore:
    """Reads and writes codecs; products and their codecs change together."""

    def __init__(self, database: Database) -> None:
        self._codecs = database["codecs"]

    async def find(self, tenant: str, model: str) -> ProductCodec | None:
        """The codec of a product."""
        found = await self._codecs.find_one({"_id": identity_of(tenant, model)})
        return _read(found["content"]) if found else None

    async def put(self, tenant: str, model: str, codec: ProductCodec, session: Session) -> None:
        """Write a codec in the caller's transaction."""
        identity = identity_of(tenant, model)
        content = {"content": msgspec.json.encode(codec)}
        await self._codecs.replace_one({"_id": identity}, content, upsert=True, session=session)

    async def delete(self, tenant: str, model: str, session: Session) -> bool:
        """Delete a codec in the caller's transaction; False when there is none."""
        gone = await self._codecs.delete_one({"_id": identity_of(tenant, model)}, session=session)
        return bool(gone.deleted_count)


_read = msgspec.json.Decoder(ProductCodec).decode


def identity_of(tenant: str, model: str) -> Document:
    """The `_id` of a product, and of its codec."""
    return {"tenant": tenant, "model": model}


MOST_VERSIONS = 500
"""TSL versions of one product."""
_ATTEMPTS = 3
HEALING = {"healing.on": True, "historyService": {"$type": "string"}}
"""The condition that devices of a product are asked for what never arrived."""

ProductKey = tuple[str, str]
"""Tenant and model."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A product as its `PUT` wants it."""

    tenant: str
    model: str
    name: str
    sn_prefixes: list[str]
    device_type: str
    tsl: StoredTsl
    history_days: int | None
    frame_days: int | None
    offline_timeout: int | None
    location_property: str | None
    marks: list[str]
    """What its members are numbered by (`services.device.things.specifications`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealingProduct:
    """A product whose devices are asked for what never arrived."""

    tenant: str
    model: str
    service: str
    """By which they are asked."""
    healing: PutHealing
    frame_days: int | None


class ProductStore:
    """Reads and writes the products of tenants."""

    def __init__(self, mongo: Mongo, devices: DeviceStore, tsls: Tsls, limits: LimitsCache) -> None:
        self._mongo = mongo
        self._products = mongo.database["products"]
        self._tsls = tsls
        self._devices = devices
        self._usage = ProductUsage(mongo.database)
        self._members = MemberRegistry(mongo.database)
        self.codecs = CodecStore(mongo.database)
        self._quota = Quota(self._products, limits, "records", "_id.tenant")

    async def find(self, tenant: str, model: str) -> Product | None:
        """The product of a model."""
        document = await self._products.find_one({"_id": identity_of(tenant, model)})
        return _product(document) if document else None

    async def get(self, tenant: str, model: str) -> Product:
        """The same; raise `NotFound` when there is none."""
        product = await self.find(tenant, model)
        if product is None:
            raise product_not_found(model)
        return product

    async def with_prefix(self, tenant: str, prefixes: list[str]) -> list[Product]:
        """The products that answer to any of `prefixes` (upper case)."""
        query = {"_id.tenant": tenant, "snPrefixes": {"$in": prefixes}, **HAS_PREFIXES}
        return [_product(document) async for document in self._products.find(query)]

    async def page(self, tenant: str, skip: int, limit: int) -> tuple[list[Product], int]:
        """Up to `limit` products by model behind the first `skip`, and how many there are."""
        query = {"_id.tenant": tenant}
        total = await self._products.count_documents(query)
        if not limit:
            return [], total
        cursor = self._products.find(query, sort=[("_id.model", 1)], skip=skip, limit=limit)
        return [_product(document) async for document in cursor], total

    async def existing_models(self, tenant: str, models: list[str]) -> set[str]:
        """Which of the models the tenant has products of."""
        query = {"_id.tenant": tenant, "_id.model": {"$in": models}}
        return {row["_id"]["model"] async for row in self._products.find(query, {"_id": 1})}

    async def put(self, wanted: Wanted, codec: ProductCodec | None = None) -> Product:
        """Create or update a product and make the given TSL its current version.

        With a codec it gets that, too.

        Raises `Conflict` when devices use the version with another content, or when a
        prefix belongs to another product of the tenant. Raises `TooManyRequests` when the tenant
        has as many products as it may.
        """
        if await self.find(wanted.tenant, wanted.model) is None:
            await self._quota.take(wanted.tenant)

        async def work(session: Session) -> Product:
            product = await self._put(wanted, session)
            if codec is not None:
                await self._put_codec(wanted.tenant, wanted.model, codec, session)
            return product

        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._mongo.transaction(work)
            except DuplicateKey as error:
                await self._explain(wanted, error)
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _put(self, wanted: Wanted, session: Session) -> Product:
        identity = identity_of(wanted.tenant, wanted.model)
        version = wanted.tsl.version
        known = await self._products.find_one({"_id": identity}, session=session)
        relation = await self._tsls.relation(wanted.tenant, wanted.model, wanted.tsl, session)
        replaced = relation in {"KEYED", "CHANGED"}
        if relation == "NEW" and known is not None and len(known["versions"]) >= MOST_VERSIONS:
            raise too_many_versions(wanted.model, MOST_VERSIONS)
        if relation == "CHANGED" and await self._devices.lists.is_used(
            wanted.tenant, wanted.model, version, session
        ):
            raise version_in_use(wanted.model, version)
        if known is None or replaced:
            await self._usage.seal(wanted.tenant, wanted.model, session)
        if relation == "NEW" or replaced:
            await self._tsls.put(wanted.tenant, wanted.model, wanted.tsl, session)
            owner = owner_of(wanted.tenant, wanted.model)
            await self._members.numbers(owner, wanted.marks, session)
        now = datetime.now(UTC)
        fields: dict[str, Any] = {
            "name": wanted.name,
            "snPrefixes": wanted.sn_prefixes,
            "deviceType": wanted.device_type,
            "currentVersion": version,
            "historyDays": wanted.history_days,
            "frameDays": wanted.frame_days,
            "deviceOfflineTimeout": wanted.offline_timeout,
            "locationProperty": wanted.location_property,
        }
        same = all((known or {}).get(name) == one for name, one in fields.items())
        if known and same and not replaced:
            return _product(known)
        await self._products.update_one(
            {"_id": identity},
            {
                "$set": {**fields, "updatedAt": now},
                "$addToSet": {"versions": version},
                "$setOnInsert": {"createdAt": now},
            },
            upsert=True,
            session=session,
        )
        return _product(
            require_document(await self._products.find_one({"_id": identity}, session=session))
        )

    async def _explain(self, wanted: Wanted, error: DuplicateKey) -> None:
        """Raise a conflict of prefixes as such; a product made meanwhile is tried again."""
        if "snPrefixes" not in (error.details or {}).get("keyPattern", {}):
            return
        for other in await self.with_prefix(wanted.tenant, wanted.sn_prefixes):
            if other.model != wanted.model:
                shared = next(
                    prefix for prefix in wanted.sn_prefixes if prefix in other.sn_prefixes
                )
                raise prefix_taken(shared, other.model) from error

    async def delete(self, tenant: str, model: str) -> bool:
        """Delete a product with its documents; False when there is none.

        Raises `Conflict` while it has devices.
        """

        async def work(session: Session) -> bool:
            if await self._devices.lists.is_used(tenant, model, None, session):
                raise product_in_use(model)
            identity = identity_of(tenant, model)
            gone = await self._products.delete_one({"_id": identity}, session=session)
            await self._usage.end(tenant, model, session)
            await self._members.forget(owner_of(tenant, model), session)
            await self._tsls.delete(tenant, model, session)
            await self.codecs.delete(tenant, model, session)
            return bool(gone.deleted_count)

        return await self._mongo.transaction(work)

    async def put_codec(self, tenant: str, model: str, codec: ProductCodec) -> None:
        """Give a product a codec; raise `NotFound` when the product is gone."""
        await self._mongo.transaction(partial(self._put_codec, tenant, model, codec))

    async def put_judged(self, tenant: str, model: str, codec: ProductCodec) -> bool:
        """Write how devices are asked; False when the product has another codec meanwhile."""

        async def work(session: Session) -> bool:
            query = {"_id": identity_of(tenant, model), "codecVersion": codec.version}
            change = {"$set": {"historyService": _service(codec)}}
            same = await self._products.update_one(query, change, session=session)
            if same.matched_count:
                await self.codecs.put(tenant, model, codec, session)
            return bool(same.matched_count)

        return await self._mongo.transaction(work)

    async def delete_codec(self, tenant: str, model: str) -> bool:
        """Take its codec from a product; False when there is none."""

        async def work(session: Session) -> bool:
            fields = {"codecVersion": None, "historyService": None}
            await self._change(tenant, model, fields, session)
            return await self.codecs.delete(tenant, model, session)

        return await self._mongo.transaction(work)

    async def _put_codec(
        self, tenant: str, model: str, codec: ProductCodec, session: Session
    ) -> None:
        fields = {"codecVersion": codec.version, "historyService": _service(codec)}
        await self._change(tenant, model, fields, session)
        await self.codecs.put(tenant, model, codec, session)

    async def _change(
        self, tenant: str, model: str, fields: Document, session: Session | None = None
    ) -> None:
        """Set fields of a product; raise `NotFound` when it is gone."""
        change = {"$set": {**fields, "updatedAt": datetime.now(UTC)}}
        query = {"_id": identity_of(tenant, model)}
        changed = await self._products.update_one(query, change, session=session)
        if not changed.matched_count:
            raise product_not_found(model)

    async def frame_heads(
        self, keys: Sequence[ProductKey]
    ) -> dict[ProductKey, tuple[str, int | None]]:
        """The version of the codec, "" for none, and the days for frames; of those there are."""
        query = {"_id": {"$in": [identity_of(*key) for key in keys]}}
        found = self._products.find(query, {"codecVersion": 1, "frameDays": 1})
        return {
            (row["_id"]["tenant"], row["_id"]["model"]): (
                row.get("codecVersion") or "",
                row.get("frameDays"),
            )
            async for row in found
        }

    async def healing(self, tenant: str, model: str) -> PutHealing:
        """Whether devices of a product are asked for what never arrived."""
        found = await self._setting(tenant, model, "healing")
        return msgspec.convert(found or {"on": False}, PutHealing)

    async def put_healing(self, tenant: str, model: str, healing: PutHealing) -> None:
        """Say so; raise `NotFound` when the product is gone."""
        await self._change(tenant, model, {"healing": msgspec.to_builtins(healing)})

    async def healing_tenants(self) -> list[str]:
        """Return the tenants that `all_healing` returns products of."""
        return list(await self._products.distinct("_id.tenant", HEALING))

    async def all_healing(self, tenant: str) -> list[HealingProduct]:
        """Return the products of a tenant whose devices are asked."""
        fields = {"healing": 1, "historyService": 1, "frameDays": 1}
        query = {"_id.tenant": tenant, **HEALING}
        found = self._products.find(query, fields, sort=[("_id", 1)])
        return [
            HealingProduct(
                tenant=tenant,
                model=row["_id"]["model"],
                service=row["historyService"],
                healing=msgspec.convert(row["healing"], PutHealing),
                frame_days=row.get("frameDays"),
            )
            async for row in found
        ]

    async def history_days(self, tenant: str, model: str) -> int | None:
        """The days for which a product keeps history, when it has some of its own."""
        days: int | None = await self._setting(tenant, model, "historyDays")
        return days

    async def offline_timeout(self, tenant: str, model: str) -> int | None:
        """The minutes of silence after which its devices are OFFLINE, when it has some."""
        minutes: int | None = await self._setting(tenant, model, "deviceOfflineTimeout")
        return minutes

    async def _setting(self, tenant: str, model: str, name: str) -> Any:
        found = await self._products.find_one({"_id": identity_of(tenant, model)}, {name: 1})
        return (found or {}).get(name)

    async def location_properties(self) -> dict[tuple[str, str], str]:
        """Where devices say that they are, by tenant and model of the products that name it."""
        query = {"locationProperty": {"$type": "string"}}
        found = self._products.find(query, {"locationProperty": 1})
        return {
            (row["_id"]["tenant"], row["_id"]["model"]): row["locationProperty"]
            async for row in found
        }

    async def all_history_days(self, tenant: str) -> dict[str, int]:
        """The same of all products of a tenant that have some of their own."""
        query = {"_id.tenant": tenant, "historyDays": {"$gt": 0}}
        found = self._products.find(query, {"historyDays": 1})
        return {row["_id"]["model"]: row["historyDays"] async for row in found}


def _service(codec: ProductCodec) -> str | None:
    """The service by which devices are asked for history, when it is right."""
    asked = codec.history
    return asked.service if asked and asked.fault is None else None


def _product(document: Document) -> Product:
    """Read a product; what is None or 0 is unset."""
    required = {"name", "snPrefixes"}
    set_fields = {name: value for name, value in document.items() if value or name in required}
    times = {name: to_ms(document[name]) for name in ("createdAt", "updatedAt")}
    return msgspec.convert({**set_fields, "model": document["_id"]["model"], **times}, Product)
