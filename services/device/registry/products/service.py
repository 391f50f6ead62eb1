"""Operations on products."""

import hashlib
import re
from typing import Any

import msgspec

from libs.common.errors import InvalidInput, NotFound
from libs.common.identity import Principal
from libs.common.things import GENERIC_MODEL
from libs.common.tsl import (
    Fault,
    TslDocument,
    TslInvalid,
    generic_tsl,
    ids_from_keys,
    keys_from_ids,
    parse_document,
)
from services.device.members.members import number_keys
from services.device.things.errors import (
    built_in_product_error,
    product_not_found,
    unknown_model_error,
)
from services.device.things.product_model import (
    Product,
    ProductCodec,
    ProductPage,
    ProductWithTsl,
    PutProduct,
)
from services.device.things.product_store import ProductStore, ProductUpdate
from services.device.things.serial_numbers import SERIAL_PATTERN
from services.device.things.specifications import StoredTsl, TslStore

MODEL_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
VERSION_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
MAX_TSL_BYTES = 4 * 1024 * 1024
"""Maximum bytes of a normalised TSL document; MongoDB holds at most 16 MiB."""


NUMERIC_DATA_TYPES = ("INT", "LONG", "FLOAT", "DOUBLE")
"""Data types that latitude and longitude can have."""


class ProductService:
    """Products of a tenant; any of its applications may manage them."""

    def __init__(self, store: ProductStore, tsls: TslStore) -> None:
        self._store = store
        self._tsls = tsls

    async def put(
        self,
        principal: Principal,
        model: str,
        body: PutProduct,
        codec: ProductCodec | None = None,
    ) -> Product:
        """Create or update a product; its TSL becomes the version for new devices.

        If given, a validated `codec` becomes its codec in the same transaction. A body that equals
        the stored product changes nothing. Raises `InvalidInput` with every fault of the body
        (faults of the TSL have paths `tsl.…`). Raises `Conflict` for the built-in product, for a
        changed TSL of a version in use, and for a prefix of another product.
        """
        update = self._validate_product(principal.tenant, model, body)
        return await self._store.put(update, codec)

    def find_faults(self, tenant: str, model: str, body: PutProduct) -> list[Fault]:
        """Return the faults of a body that `put` would find without stored data.

        Raises `Conflict` for the built-in product.
        """
        try:
            self._validate_product(tenant, model, body)
        except InvalidInput as error:
            return list(error.faults) or [Fault(error.field or "", error.message)]
        return []

    @staticmethod
    def _validate_product(tenant: str, model: str, body: PutProduct) -> ProductUpdate:
        if model.lower() == GENERIC_MODEL:
            raise built_in_product_error(model)
        if not MODEL_PATTERN.fullmatch(model):
            raise InvalidInput(
                "must be 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit",
                field="model",
            )
        faults: list[Fault] = []
        prefixes = _normalize_prefixes(body.sn_prefixes, faults)
        document = _parse_document(body.tsl, faults)
        tsl = _encode_tsl(document, faults) if document else None
        if document is not None and body.location_property is not None:
            faults += _location_faults(document, body.location_property)
        if faults or document is None or tsl is None:
            raise InvalidInput.from_faults(faults)
        identity = (tenant, model, body.name, prefixes, body.device_type)
        days = (body.history_days, body.frame_days)
        more = (body.device_offline_timeout, body.location_property)
        return ProductUpdate(*identity, tsl, *days, *more, number_keys(document))

    async def get(self, principal: Principal, model: str) -> ProductWithTsl:
        """Return a product with its current TSL; raise `NotFound`."""
        product = await self.find(principal.tenant, model)
        if product is None:
            raise product_not_found(model)
        tsl = await self.find_tsl_or_open_tsl(
            principal.tenant, product.model, product.current_version
        )
        return ProductWithTsl(**msgspec.structs.asdict(product), tsl=tsl)

    async def get_version(self, principal: Principal, model: str, version: str) -> TslDocument:
        """Return the TSL of one version of a product; raise `NotFound`."""
        if version not in await self.list_versions(principal.tenant, model):
            raise NotFound(f"product {model} has no version {version}", field="version")
        return await self.find_tsl_or_open_tsl(principal.tenant, model, version)

    async def list_page(self, principal: Principal, number: int, size: int) -> ProductPage:
        """Return page `number` (from 1) of all products: the built-in one, then others by model."""
        start = (number - 1) * size
        built_in = [generic_product()] if start == 0 else []
        products, total = await self._store.page(
            principal.tenant, max(start - 1, 0), size - len(built_in)
        )
        return ProductPage(size, number, total + 1, built_in + products)

    async def list_labels(self, tenant: str, maximum: int) -> dict[str, str]:
        """Return labels by model, of the built-in product and of at most `maximum` others."""
        products, _ = await self._store.page(tenant, 0, maximum)
        return {
            product.model: format_label(product.name, product.model)
            for product in (generic_product(), *products)
        }

    async def delete(self, principal: Principal, model: str) -> str:
        """Delete a product; return its model.

        Raises `Conflict` for a product with devices and for the built-in product, and `NotFound`.
        """
        if model.lower() == GENERIC_MODEL:
            raise built_in_product_error(model)
        if not await self._store.delete(principal.tenant, model):
            raise product_not_found(model)
        return model

    async def choose_for_device(self, tenant: str, model: str | None, serial: str) -> Product:
        """Return the product of a new device: by `model`, or by SN prefix if `model` is None.

        `serial` is in upper case. The longest prefix wins. If none matches, the product is
        `generic`.
        Raises `InvalidInput` for a model that the tenant does not have.
        """
        if model is not None:
            product = await self.find(tenant, model)
            if product is None:
                raise unknown_model_error(model)
            return product
        prefixes = [serial[:end] for end in range(len(serial), 0, -1)]
        lengths = {
            len(prefix): product
            for product in await self._store.find_by_prefixes(tenant, prefixes)
            for prefix in product.sn_prefixes
            if serial.startswith(prefix)
        }
        return lengths[max(lengths)] if lengths else generic_product()

    async def exists(self, tenant: str, model: str) -> bool:
        """Return whether the tenant has a product of the model."""
        return await self.find(tenant, model) is not None

    async def filter_existing_models(self, tenant: str, models: list[str]) -> set[str]:
        """Return those of `models` for which the tenant has a product."""
        return await self._store.filter_existing_models(tenant, models)

    async def list_versions(self, tenant: str, model: str) -> list[str]:
        """Return the TSL versions of a product; none if it does not exist."""
        product = await self.find(tenant, model)
        return product.versions if product else []

    async def find_tsl_or_open_tsl(self, tenant: str, model: str, version: str) -> TslDocument:
        """Return the document of one version, or the open TSL if it does not exist."""
        return (await self._tsls.find_or_generic(tenant, model, version)).document

    async def find(self, tenant: str, model: str) -> Product | None:
        """Return the product of a model, or None."""
        return (
            generic_product() if model == GENERIC_MODEL else await self._store.find(tenant, model)
        )


def format_label(name: str, model: str) -> str:
    """Return the text that users see for a model."""
    return name if name == model else f"{name} ({model})"


def generic_product() -> Product:
    """Return the built-in product, for devices without another product."""
    version = generic_tsl().document.version
    return Product(
        model=GENERIC_MODEL,
        name="Generic device",
        sn_prefixes=[],
        device_type="COMMON",
        current_version=version,
        versions=[version],
    )


def _normalize_prefixes(prefixes: list[str], faults: list[Fault]) -> list[str]:
    for at, prefix in enumerate(prefixes):
        if not SERIAL_PATTERN.fullmatch(prefix):
            faults.append(Fault(f"snPrefixes[{at}]", "must be 1 to 64 letters, digits, '_' or '-'"))
    return list(dict.fromkeys(prefix.upper() for prefix in prefixes))


def _parse_document(document: dict[str, Any], faults: list[Fault]) -> TslDocument | None:
    try:
        return parse_document(document)
    except TslInvalid as invalid:
        faults.extend(
            Fault(f"tsl.{fault.path}" if fault.path else "tsl", fault.reason)
            for fault in invalid.faults
        )
        return None


def _encode_tsl(document: TslDocument, faults: list[Fault]) -> StoredTsl:
    if not VERSION_PATTERN.fullmatch(document.version):
        reason = "must be 1 to 32 letters, digits, '.', '_' or '-'"
        faults.append(Fault("tsl.version", reason))
    content = msgspec.json.encode(document)
    if len(content) > MAX_TSL_BYTES:
        faults.append(Fault("tsl", f"must be at most {MAX_TSL_BYTES} bytes"))
    return StoredTsl(
        document.version,
        content,
        hashlib.sha256(content).hexdigest(),
        hashlib.sha256(msgspec.json.encode(keys_from_ids(document))).hexdigest(),
    )


def _location_faults(document: TslDocument, name: str) -> list[Fault]:
    """Return the faults of a location property."""
    properties = ids_from_keys(document).properties
    kinds = {spec.id: spec.data_spec.data_type for spec in properties if spec.data_spec}
    if kinds.get(name) != "STRUCT":
        return [Fault("locationProperty", "must be a STRUCT property of the TSL")]
    return [
        Fault("locationProperty", f"must have a number `{member}`")
        for member in ("latitude", "longitude")
        if kinds.get(f"{name}.{member}") not in NUMERIC_DATA_TYPES
    ]
