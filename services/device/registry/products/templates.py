"""Libraries of device templates, and creation of products from them.

`template_libraries`: `{_id: tenant, head, content}`; `head` is JSON and `content` the archive.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal
from weakref import WeakValueDictionary

import msgspec

from libs.common.bus import RpcClient
from libs.common.clock import now_ms
from libs.common.contracts.limits import MAX_LIBRARY_BYTES
from libs.common.contracts.names import READ_RESOURCE, FilePart, ReadResource
from libs.common.decoding import copy_fields
from libs.common.errors import Conflict, InvalidInput, NotFound, TooLarge, TooManyRequests
from libs.common.http.console import PageRequest, ResponseModel
from libs.common.identity import Principal
from libs.common.scheduling import FairScheduler
from libs.common.store.mongo import Database
from libs.common.things import GENERIC_MODEL
from libs.common.tsl import Fault, to_wire
from services.device.lorawan.codec_service import CodecService
from services.device.lorawan.schemas import PutCodec
from services.device.registry.products.service import MODEL_PATTERN, ProductService, format_label
from services.device.registry.products.template_library import (
    MAX_LIBRARY_MODELS,
    Archive,
    ArchiveInvalid,
    LibraryInvalid,
    NoTemplates,
    TemplateRef,
    find_template_faults,
    read_library,
)
from services.device.registry.products.template_parser import Template, TemplateInvalid
from services.device.things.product_model import Product, ProductCodec, ProductFault, PutProduct

MAX_IMPORT_MODELS = 20
MAX_STORED_FAULTS = 5
"""Maximum faults that are stored of a template; correcting them may reveal others."""
ProductModel = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class BlueprintSource(ResponseModel, kw_only=True):
    """Answer of `GET /blueprint-library-setting`; `DEFAULT` has no templates.

    Times are ms.
    """

    current_source_type: Literal["DEFAULT", "UPLOAD"]
    """`DEFAULT` (no library) or `UPLOAD`."""
    synced_success: bool
    """Whether the library was read completely."""
    type: Literal["ZIP"] | None = None
    url: str | None = None
    """The upload that the library was read from, which may be deleted."""
    file_name: str | None = None
    """Name of the uploaded file."""
    version: str | None = None
    """Version in the manifest of the library."""
    update_time: int | None = None
    """Time of the upload in milliseconds since 1970-01-01 UTC."""


class SetBlueprintSource(msgspec.Struct):
    """Body of `POST /blueprint-library-setting`.

    `url` is the `resource_url` of an upload.
    """

    source_type: Literal["DEFAULT", "UPLOAD"]
    """`DEFAULT` (no library) or `UPLOAD`."""
    type: Literal["ZIP", "GITHUB"] | None = None
    url: Annotated[str, msgspec.Meta(max_length=1024)] | None = None
    """`resource_url` of the uploaded ZIP file."""


class FindTemplates(PageRequest, kw_only=True):
    """Body of `POST /product-template/search`; the results are in the order of their models.

    `keyword` is a part of model, name or vendor.
    """

    largest = MAX_LIBRARY_MODELS
    keyword: Annotated[str, msgspec.Meta(max_length=128)] = ""
    """Part of the model, name or vendor, ignoring case."""


class LibraryTemplate(msgspec.Struct, kw_only=True):
    """A template of the library; one with faults cannot be imported."""

    model: str
    """The model of the product that is created from it."""
    name: str
    vendor: str
    """Name of the manufacturer."""
    imported: bool
    """Whether the tenant has a product of the model."""
    faults: list[ProductFault]


class ImportTemplates(msgspec.Struct):
    """Body of `POST /product-template/import`."""

    models: Annotated[list[ProductModel], msgspec.Meta(min_length=1, max_length=MAX_IMPORT_MODELS)]
    """Models of the templates."""


class ImportedTemplate(ResponseModel, kw_only=True):
    """The result of an import: a product with its codec, or `faults`."""

    model: str
    faults: list[ProductFault]
    warning: str | None = None
    """The reason why its devices cannot be asked for stored readings."""


class StoredTemplate(msgspec.Struct, frozen=True):
    """A template of a library, with its faults at the time of the upload."""

    ref: TemplateRef
    faults: list[ProductFault]


class StoredLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """The library of a tenant, without the archive."""

    url: str
    file_name: str
    version: str
    updated_at: int
    """Unix time in ms."""
    templates: list[StoredTemplate]


def to_product_faults(faults: Sequence[Fault]) -> list[ProductFault]:
    """Return the first `MAX_STORED_FAULTS` faults, with long paths and reasons cut."""
    return [ProductFault(each.path[:300], each.reason[:500]) for each in faults[:MAX_STORED_FAULTS]]


class LibraryStore:
    """Reads and writes libraries, one for each tenant."""

    def __init__(self, database: Database) -> None:
        self._libraries = database["template_libraries"]

    async def put(self, tenant: str, library: StoredLibrary, content: bytes) -> None:
        """Store the library of a tenant."""
        row = {"head": msgspec.json.encode(library), "content": content}
        await self._libraries.replace_one({"_id": tenant}, row, upsert=True)

    async def delete(self, tenant: str) -> None:
        """Delete the library of a tenant."""
        await self._libraries.delete_one({"_id": tenant})

    async def find(self, tenant: str) -> StoredLibrary | None:
        """Return the library of a tenant, without its archive."""
        document = await self._libraries.find_one({"_id": tenant}, {"head": 1})
        return _decode_library(document["head"]) if document else None

    async def find_with_archive(self, tenant: str) -> tuple[StoredLibrary, bytes] | None:
        """Return the library of a tenant, with its archive."""
        document = await self._libraries.find_one({"_id": tenant})
        return (_decode_library(document["head"]), document["content"]) if document else None


_decode_library = msgspec.json.Decoder(StoredLibrary).decode


TEMPLATE_OFFLINE_MINUTES = 1440
"""Minutes without an uplink until devices of a new product are OFFLINE: sensors sleep."""


def product_from_template(template: Template, name: str, existing: Product | None) -> PutProduct:
    """Return the body of a product; an existing product keeps everything but its TSL."""
    tsl = to_wire(template.document)
    if existing is None:
        return PutProduct(name=name, tsl=tsl, device_offline_timeout=TEMPLATE_OFFLINE_MINUTES)
    fields = {name: getattr(existing, name, msgspec.UNSET) for name in PutProduct.__struct_fields__}
    kept_fields = {name: value for name, value in fields.items() if value is not msgspec.UNSET}
    return PutProduct(**kept_fields | {"tsl": tsl})


def codec_from_template(template: Template) -> PutCodec:
    """Return the body of a template's codec."""
    codec = template.codec
    return PutCodec(scripts=codec.scripts, decoder=codec.decoder, encoder=codec.encoder)


def codec_warning(codec: ProductCodec) -> str | None:
    """Return a warning if the codec has a faulty request for stored readings, or None."""
    request = codec.history
    if request is None or request.fault is None:
        return None
    return f"devices are not asked for their history: {request.service} {request.fault}"


class ResourceClient:
    """Reads uploads, which `management` stores."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def read_upload(self, tenant: str, url: str) -> tuple[str, bytes]:
        """Return name and content of a file of the tenant.

        Raises `NotFound` when it does not exist, `TooLarge` above `MAX_LIBRARY_BYTES` bytes.
        """
        content = bytearray()
        while True:
            request = ReadResource(tenant, url, len(content))
            part = await self._rpc.call(READ_RESOURCE, request, FilePart)
            if not part.content:
                return part.name, bytes(content)
            content += part.content
            if len(content) > MAX_LIBRARY_BYTES:
                raise TooLarge(f"a library may have at most {MAX_LIBRARY_BYTES} bytes", field="url")


LIBRARY_NOT_READ_CODE = "blueprint_library_resources_fetch_failed"
INDEX_INVALID_CODE = "blueprint_library_address_manifest_invalid"
LIBRARY_EMPTY_CODE = "blueprint_library_resource_device_template_not_found"
MAX_LIBRARY_HEAD_BYTES = 4 * 1024 * 1024
"""Maximum bytes of a stored library in addition to its archive."""
VALIDATION_SLOTS = 2
"""Libraries that are validated concurrently, one of a tenant."""
VALIDATION_SECONDS = 15
"""Maximum seconds of processor time to validate a library, while other tenants wait."""


@dataclass(frozen=True)
class TemplateService:
    """Operations on the template libraries of tenants, and products from them."""

    store: LibraryStore
    resources: ResourceClient
    products: ProductService
    codecs: CodecService
    _readers: FairScheduler = field(
        default_factory=lambda: FairScheduler("template libraries", VALIDATION_SLOTS), init=False
    )
    _import_locks: WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=WeakValueDictionary, init=False
    )

    async def replace_library(self, tenant: str, url: str) -> None:
        """Replace the library by an uploaded file.

        Raises `InvalidInput` if the file does not exist or is no library, and `TooLarge`. Faults of
        single templates do not prevent the upload: each template is stored with its faults.
        """
        try:
            async with self._tenant_lock(tenant):
                name, content = await self.resources.read_upload(tenant, url)
                async with self._readers.slot(tenant):
                    version, templates = await asyncio.to_thread(_read_library, content, name)
        except NotFound as error:
            raise InvalidInput(error.message, field="url", code=LIBRARY_NOT_READ_CODE) from error
        except NoTemplates as error:
            raise InvalidInput(str(error), field="url", code=LIBRARY_EMPTY_CODE) from error
        except LibraryInvalid as error:
            raise InvalidInput(str(error), field="url", code=INDEX_INVALID_CODE) from error
        except ArchiveInvalid as error:
            raise InvalidInput(str(error), field="url", code=LIBRARY_NOT_READ_CODE) from error
        library = StoredLibrary(
            url=url, file_name=name, version=version, updated_at=now_ms(), templates=templates
        )
        await self.store.put(tenant, library, content)

    async def find(self, tenant: str, request: FindTemplates) -> tuple[list[LibraryTemplate], int]:
        """Return a page of templates, and the total."""
        words = request.keyword.lower()
        templates = [
            template
            for template in await self._find_all(tenant)
            if words in f"{template.ref.model} {template.ref.name} {template.ref.vendor}".lower()
        ]
        start = (request.number - 1) * request.size
        page = templates[start : start + request.size]
        models = [template.ref.model for template in page]
        existing = await self.products.filter_existing_models(tenant, models)
        rows = [
            copy_fields(
                LibraryTemplate,
                entry.ref,
                imported=entry.ref.model in existing,
                faults=entry.faults,
            )
            for entry in page
        ]
        return rows, len(templates)

    async def create_products(
        self, principal: Principal, models: Iterable[str]
    ) -> list[ImportedTemplate]:
        """Create or update products from templates; return one result for each."""
        async with self._tenant_lock(principal.tenant):
            return await self._import(principal, models)

    async def create_if_missing(self, principal: Principal, model: str) -> None:
        """Create the product of a model from the library if the tenant lacks the product.

        Do nothing without a template of the model. Raises `InvalidInput` for an invalid template.
        """
        if model not in {template.ref.model for template in await self._find_all(principal.tenant)}:
            return
        async with self._tenant_lock(principal.tenant):
            if await self.products.exists(principal.tenant, model):
                return  # another request created it meanwhile
            (made,) = await self._import(principal, [model])
        if made.faults:
            text = "; ".join(f"{fault.field}: {fault.reason}" for fault in made.faults)
            raise InvalidInput(f"the template of {model} is invalid: {text}", field="model")

    async def filter_available_models(self, tenant: str, models: Collection[str]) -> set[str]:
        """Return those of `models` that have a product or a valid template."""
        templates = await self._find_all(tenant)
        ready = {template.ref.model for template in templates if not template.faults}
        existing = await self.products.filter_existing_models(tenant, list(models))
        return {GENERIC_MODEL, *existing, *ready} & set(models)

    async def list_labels(self, tenant: str, maximum: int) -> dict[str, str]:
        """Return labels by model: of products, then of valid templates up to `maximum` labels."""
        labels = await self.products.list_labels(tenant, maximum)
        for template in await self._find_all(tenant):
            ref = template.ref
            if len(labels) < maximum and not template.faults:
                labels.setdefault(ref.model, format_label(ref.name, ref.model))
        return labels

    async def _find_all(self, tenant: str) -> list[StoredTemplate]:
        library = await self.store.find(tenant)
        return library.templates if library else []

    async def _import(self, principal: Principal, models: Iterable[str]) -> list[ImportedTemplate]:
        whole = await self.store.find_with_archive(principal.tenant)
        templates = {each.ref.model: each for each in whole[0].templates} if whole else {}
        archive = await asyncio.to_thread(Archive, whole[1]) if whole else None
        return [
            await self._create_product(principal, archive, templates.get(model), model)
            for model in dict.fromkeys(models)
        ]

    async def _create_product(
        self,
        principal: Principal,
        archive: Archive | None,
        stored: StoredTemplate | None,
        model: str,
    ) -> ImportedTemplate:
        if archive is None or stored is None:
            fault = Fault("model", "there is no such template in the library")
            return ImportedTemplate(model=model, faults=to_product_faults([fault]))
        if stored.faults:
            return ImportedTemplate(model=model, faults=stored.faults)
        try:
            template = await asyncio.to_thread(stored.ref.read, archive)
            existing = await self.products.find(principal.tenant, model)
            body = product_from_template(template, stored.ref.name, existing)
            codec = await self.codecs.validate(
                principal.tenant, codec_from_template(template), template.document
            )
            await self.products.put(principal, model, body, codec)
        except TemplateInvalid as error:
            return ImportedTemplate(model=model, faults=to_product_faults(error.faults))
        except (InvalidInput, Conflict, TooManyRequests) as error:
            faults = getattr(error, "faults", ()) or [Fault(error.field or "", error.message)]
            return ImportedTemplate(model=model, faults=to_product_faults(faults))
        return ImportedTemplate(model=model, faults=[], warning=codec_warning(codec))

    def _tenant_lock(self, tenant: str) -> asyncio.Lock:
        """Return the lock that serializes the imports of a tenant."""
        return self._import_locks.setdefault(tenant, asyncio.Lock())


def _read_library(content: bytes, file_name: str) -> tuple[str, list[StoredTemplate]]:
    """Return the version of a library, and its templates with their faults."""
    archive = Archive(content)
    library = read_library(archive, file_name.rpartition(".")[0] or file_name)
    until = time.thread_time() + VALIDATION_SECONDS
    templates = []
    for ref in library.models:
        faults = to_product_faults(_model_faults(ref.model) + find_template_faults(archive, ref))
        templates.append(StoredTemplate(ref, faults))
        if time.thread_time() > until:
            raise LibraryInvalid(f"takes more than {VALIDATION_SECONDS} s of a processor to read")
    if len(msgspec.json.encode(templates)) > MAX_LIBRARY_HEAD_BYTES:
        raise LibraryInvalid(f"has more than {MAX_LIBRARY_HEAD_BYTES} bytes of names and faults")
    return library.version, templates


def _model_faults(model: str) -> list[Fault]:
    if MODEL_PATTERN.fullmatch(model) and model.lower() != GENERIC_MODEL:
        return []
    return [Fault("id", "must be a model: 1 to 64 letters, digits, '.', '_' or '-'")]
