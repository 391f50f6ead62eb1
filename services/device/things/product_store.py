"""Products and their codecs in MongoDB.

`products`: `{_id: {tenant, model}, name, snPrefixes, deviceType, currentVersion, versions,
historyDays?, frameDays?, deviceOfflineTimeout?, locationProperty?, codecVersion?, historyService?,
healing?, createdAt, updatedAt}`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

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
    prefix_taken_error,
    product_in_use_error,
    product_not_found,
    too_many_versions_error,
    version_in_use_error,
)
from services.device.things.product_model import Product, ProductCodec, PutGapHealing
from services.device.things.specifications import (
    MemberRegistry,
    ProductLocks,
    StoredTsl,
    TslStore,
    product_number_owner,
)


class CodecStore:
    """Reads codecs, and writes them in the transaction that changes their product."""

    def __init__(self, database: Database) -> None:
        self._codecs = database["codecs"]

    async def find(self, tenant: str, model: str) -> ProductCodec | None:
        """Return the codec of a product, or None."""
        document = await self._codecs.find_one({"_id": product_id(tenant, model)})
        return _decode_codec(document["content"]) if document else None

    async def put(self, tenant: str, model: str, codec: ProductCodec, session: Session) -> None:
        """Write a codec in the caller's transaction."""
        identity = product_id(tenant, model)
        content = {"content": msgspec.json.encode(codec)}
        await self._codecs.replace_one({"_id": identity}, content, upsert=True, session=session)

    async def delete(self, tenant: str, model: str, session: Session) -> bool:
        """Delete a codec in the caller's transaction; False when it does not exist."""
        query = {"_id": product_id(tenant, model)}
        return bool((await self._codecs.delete_one(query, session=session)).deleted_count)


_decode_codec = msgspec.json.Decoder(ProductCodec).decode


def product_id(tenant: str, model: str) -> Document:
    """Return the `_id` of a product and of its codec."""
    return {"tenant": tenant, "model": model}


MAX_VERSIONS = 500
"""Maximum TSL versions of one product."""
_MAX_ATTEMPTS = 3
HAS_PREFIXES = {"snPrefixes.0": {"$exists": True}}
"""The filter of the partial index of prefixes; queries repeat it to use the index."""
HEALING_CONDITION = {"healing.on": True, "historyService": {"$type": "string"}}
"""The condition of products whose devices are asked for missing readings (gap healing)."""

ProductKey = tuple[str, str]
"""Tenant and model."""


class FrameSettings(NamedTuple):
    """Version of a product's codec ("" for none), and days that frames are kept, if set."""

    codec_version: str
    days: int | None


@dataclass(frozen=True, slots=True)
class ProductUpdate:
    """A product to create or update."""

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
    number_keys: list[str]
    """The keys by which the members of `tsl` get numbers (see `MemberRegistry`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealingProduct:
    """A product whose devices are asked for missing readings."""

    tenant: str
    model: str
    service: str
    """Id of the service that asks a device for its stored readings."""
    healing: PutGapHealing
    frame_days: int | None


class ProductStore:
    """Reads and writes the products of tenants."""

    def __init__(
        self, mongo: Mongo, devices: DeviceStore, tsls: TslStore, limits: LimitsCache
    ) -> None:
        self._mongo = mongo
        self._products = mongo.database["products"]
        self._tsls = tsls
        self._devices = devices
        self._usage = ProductLocks(mongo.database)
        self._members = MemberRegistry(mongo.database)
        self.codecs = CodecStore(mongo.database)
        self._quota = Quota(self._products, limits, "records", "_id.tenant")

    async def find(self, tenant: str, model: str) -> Product | None:
        """Return the product of a model, or None."""
        document = await self._products.find_one({"_id": product_id(tenant, model)})
        return _product_from_document(document) if document else None

    async def get(self, tenant: str, model: str) -> Product:
        """Return the product of a model; raise `NotFound`."""
        product = await self.find(tenant, model)
        if product is None:
            raise product_not_found(model)
        return product

    async def find_by_prefixes(self, tenant: str, prefixes: list[str]) -> list[Product]:
        """Return the products that have any of the SN prefixes (upper case)."""
        query = {"_id.tenant": tenant, "snPrefixes": {"$in": prefixes}, **HAS_PREFIXES}
        return [_product_from_document(document) async for document in self._products.find(query)]

    async def page(self, tenant: str, skip: int, limit: int) -> tuple[list[Product], int]:
        """Return a page of products, sorted by model, and the total."""
        query = {"_id.tenant": tenant}
        total = await self._products.count_documents(query)
        if not limit:
            return [], total
        cursor = self._products.find(query, sort=[("_id.model", 1)], skip=skip, limit=limit)
        return [_product_from_document(document) async for document in cursor], total

    async def filter_existing_models(self, tenant: str, models: list[str]) -> set[str]:
        """Return those of the models that the tenant has products of."""
        query = {"_id.tenant": tenant, "_id.model": {"$in": models}}
        return {row["_id"]["model"] async for row in self._products.find(query, {"_id": 1})}

    async def put(self, update: ProductUpdate, codec: ProductCodec | None = None) -> Product:
        """Create or update a product and make the given TSL its current version.

        If given, `codec` replaces the codec of the product. Raises `Conflict` when devices use the
        version with another content, when the product has `MAX_VERSIONS` versions, or when another
        product of the tenant has a prefix. Raises `TooManyRequests` at the limit of products.
        """
        if await self.find(update.tenant, update.model) is None:
            await self._quota.reserve(update.tenant)

        async def write_product(session: Session) -> Product:
            product = await self._put(update, session)
            if codec is not None:
                await self._put_codec(update.tenant, update.model, codec, session)
            return product

        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                return await self._mongo.transaction(write_product)
            except DuplicateKey as error:
                await self._raise_if_prefix_taken(update, error)
                if attempt == _MAX_ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _put(self, update: ProductUpdate, session: Session) -> Product:
        identity = product_id(update.tenant, update.model)
        version = update.tsl.version
        stored = await self._products.find_one({"_id": identity}, session=session)
        relation = await self._tsls.compare(update.tenant, update.model, update.tsl, session)
        replaced = relation in {"KEYED", "CHANGED"}
        if relation == "NEW" and stored is not None and len(stored["versions"]) >= MAX_VERSIONS:
            raise too_many_versions_error(update.model, MAX_VERSIONS)
        if relation == "CHANGED" and await self._devices.queries.is_product_used(
            update.tenant, update.model, version, session
        ):
            raise version_in_use_error(update.model, version)
        if stored is None or replaced:
            await self._usage.lock_exclusively(update.tenant, update.model, session)
        if relation == "NEW" or replaced:
            await self._tsls.put(update.tenant, update.model, update.tsl, session)
            owner = product_number_owner(update.tenant, update.model)
            await self._members.assign_numbers(owner, update.number_keys, session)
        now = datetime.now(UTC)
        fields: dict[str, Any] = {
            "name": update.name,
            "snPrefixes": update.sn_prefixes,
            "deviceType": update.device_type,
            "currentVersion": version,
            "historyDays": update.history_days,
            "frameDays": update.frame_days,
            "deviceOfflineTimeout": update.offline_timeout,
            "locationProperty": update.location_property,
        }
        is_same = all((stored or {}).get(name) == value for name, value in fields.items())
        if stored and is_same and not replaced:
            return _product_from_document(stored)
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
        return _product_from_document(
            require_document(await self._products.find_one({"_id": identity}, session=session))
        )

    async def _raise_if_prefix_taken(self, update: ProductUpdate, error: DuplicateKey) -> None:
        """Raise `Conflict` if another product has an SN prefix; return for other duplicates."""
        if "snPrefixes" not in (error.details or {}).get("keyPattern", {}):
            return
        for other in await self.find_by_prefixes(update.tenant, update.sn_prefixes):
            if other.model != update.model:
                shared = next(
                    prefix for prefix in update.sn_prefixes if prefix in other.sn_prefixes
                )
                raise prefix_taken_error(shared, other.model) from error

    async def delete(self, tenant: str, model: str) -> bool:
        """Delete a product with its TSLs, codec and member numbers; False if it does not exist.

        Raises `Conflict` while devices have the product.
        """

        async def delete_product(session: Session) -> bool:
            if await self._devices.queries.is_product_used(tenant, model, None, session):
                raise product_in_use_error(model)
            identity = product_id(tenant, model)
            deleted = await self._products.delete_one({"_id": identity}, session=session)
            await self._usage.delete(tenant, model, session)
            await self._members.delete(product_number_owner(tenant, model), session)
            await self._tsls.delete(tenant, model, session)
            await self.codecs.delete(tenant, model, session)
            return bool(deleted.deleted_count)

        return await self._mongo.transaction(delete_product)

    async def put_codec(self, tenant: str, model: str, codec: ProductCodec) -> None:
        """Set the codec of a product; raise `NotFound` when the product does not exist."""
        await self._mongo.transaction(partial(self._put_codec, tenant, model, codec))

    async def update_history_request(self, tenant: str, model: str, codec: ProductCodec) -> bool:
        """Write the history request of a codec; False when the codec was replaced."""

        async def write_codec(session: Session) -> bool:
            query = {"_id": product_id(tenant, model), "codecVersion": codec.version}
            change = {"$set": {"historyService": _history_service(codec)}}
            updated = await self._products.update_one(query, change, session=session)
            if updated.matched_count:
                await self.codecs.put(tenant, model, codec, session)
            return bool(updated.matched_count)

        return await self._mongo.transaction(write_codec)

    async def delete_codec(self, tenant: str, model: str) -> bool:
        """Delete the codec of a product; False when it has none. Raises `NotFound`."""

        async def delete_codec(session: Session) -> bool:
            fields = {"codecVersion": None, "historyService": None}
            await self._set_fields(tenant, model, fields, session)
            return await self.codecs.delete(tenant, model, session)

        return await self._mongo.transaction(delete_codec)

    async def _put_codec(
        self, tenant: str, model: str, codec: ProductCodec, session: Session
    ) -> None:
        fields = {"codecVersion": codec.version, "historyService": _history_service(codec)}
        await self._set_fields(tenant, model, fields, session)
        await self.codecs.put(tenant, model, codec, session)

    async def _set_fields(
        self, tenant: str, model: str, fields: Document, session: Session | None = None
    ) -> None:
        """Set fields of a product; raise `NotFound` when it does not exist."""
        change = {"$set": {**fields, "updatedAt": datetime.now(UTC)}}
        query = {"_id": product_id(tenant, model)}
        changed = await self._products.update_one(query, change, session=session)
        if not changed.matched_count:
            raise product_not_found(model)

    async def find_frame_settings(
        self, keys: Sequence[ProductKey]
    ) -> dict[ProductKey, FrameSettings]:
        """Return the settings of frames by product; unknown products are missing."""
        query = {"_id": {"$in": [product_id(*key) for key in keys]}}
        cursor = self._products.find(query, {"codecVersion": 1, "frameDays": 1})
        return {
            (row["_id"]["tenant"], row["_id"]["model"]): FrameSettings(
                row.get("codecVersion") or "", row.get("frameDays")
            )
            async for row in cursor
        }

    async def find_healing(self, tenant: str, model: str) -> PutGapHealing:
        """Return whether and how often devices are asked for missing readings."""
        healing = await self._find_setting(tenant, model, "healing")
        return msgspec.convert(healing or {"on": False}, PutGapHealing)

    async def put_healing(self, tenant: str, model: str, healing: PutGapHealing) -> None:
        """Store whether and how often devices are asked for missing readings; raise `NotFound`."""
        await self._set_fields(tenant, model, {"healing": msgspec.to_builtins(healing)})

    async def list_healing_tenants(self) -> list[str]:
        """Return the tenants that have products for `list_healing_products`."""
        return list(await self._products.distinct("_id.tenant", HEALING_CONDITION))

    async def list_healing_products(self, tenant: str) -> list[HealingProduct]:
        """Return the products of a tenant whose devices are asked for missing readings."""
        fields = {"healing": 1, "historyService": 1, "frameDays": 1}
        query = {"_id.tenant": tenant, **HEALING_CONDITION}
        cursor = self._products.find(query, fields, sort=[("_id", 1)])
        return [
            HealingProduct(
                tenant=tenant,
                model=row["_id"]["model"],
                service=row["historyService"],
                healing=msgspec.convert(row["healing"], PutGapHealing),
                frame_days=row.get("frameDays"),
            )
            async for row in cursor
        ]

    async def find_history_days(self, tenant: str, model: str) -> int | None:
        """Return the days that a product keeps history, if set."""
        days: int | None = await self._find_setting(tenant, model, "historyDays")
        return days

    async def find_offline_timeout_minutes(self, tenant: str, model: str) -> int | None:
        """Return the minutes without a message until OFFLINE, if set."""
        minutes: int | None = await self._find_setting(tenant, model, "deviceOfflineTimeout")
        return minutes

    async def _find_setting(self, tenant: str, model: str, name: str) -> Any:
        document = await self._products.find_one({"_id": product_id(tenant, model)}, {name: 1})
        return (document or {}).get(name)

    async def list_location_properties(self) -> dict[tuple[str, str], str]:
        """Return the location property by tenant and model, where products have one."""
        query = {"locationProperty": {"$type": "string"}}
        cursor = self._products.find(query, {"locationProperty": 1})
        return {
            (row["_id"]["tenant"], row["_id"]["model"]): row["locationProperty"]
            async for row in cursor
        }

    async def list_history_days(self, tenant: str) -> dict[str, int]:
        """Return the days of history by model, for products of a tenant that set them."""
        query = {"_id.tenant": tenant, "historyDays": {"$gt": 0}}
        cursor = self._products.find(query, {"historyDays": 1})
        return {row["_id"]["model"]: row["historyDays"] async for row in cursor}


def _history_service(codec: ProductCodec) -> str | None:
    """Return the service that asks for stored readings, if it has no fault."""
    request = codec.history
    return request.service if request and request.fault is None else None


def _product_from_document(document: Document) -> Product:
    """Return the product in a document, in which None and 0 mean unset."""
    required = {"name", "snPrefixes"}
    set_fields = {name: value for name, value in document.items() if value or name in required}
    times = {name: to_ms(document[name]) for name in ("createdAt", "updatedAt")}
    return msgspec.convert({**set_fields, "model": document["_id"]["model"], **times}, Product)
