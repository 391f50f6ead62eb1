"""What may be done with device templates: a library is taken, and products are made of it."""

import asyncio
import time
from collections.abc import Collection, Iterable
from weakref import WeakValueDictionary

import msgspec

from libs.common.clock import now_ms
from libs.common.errors import Conflict, InvalidInput, NotFound, TooManyRequests
from libs.common.identity import Principal
from libs.common.scheduling import FairScheduler
from libs.common.things import GENERIC
from libs.common.tsl import Fault
from services.device.codecs.archives import Archive, ArchiveInvalid
from services.device.codecs.libraries import LibraryInvalid, NoTemplates, faults_of, read_library
from services.device.codecs.templates import TemplateInvalid
from services.device.lorawan.codec_service import CodecService
from services.device.products.service import MODEL, ProductService, label_of
from services.device.products.templates.making import codec_of, product_of, warning_of
from services.device.products.templates.messages import ResourcesOverRpc
from services.device.products.templates.schemas import (
    FindTemplates,
    ImportedTemplate,
    KeptLibrary,
    KeptTemplate,
    ShownTemplate,
    shown,
)
from services.device.products.templates.store import LibraryStore

NOT_READ = "blueprint_library_resources_fetch_failed"
ODD_INDEX = "blueprint_library_address_manifest_invalid"
EMPTY = "blueprint_library_resource_device_template_not_found"
LARGEST_HEAD = 4 * 1024 * 1024
"""Bytes that are kept of a library besides its archive."""
READERS = 2
"""Libraries that are judged at a time, one of a tenant."""
LONGEST = 15
"""Seconds of a processor that judging a library may take, while other tenants wait for theirs."""


class Templates:
    """The library of each tenant."""

    def __init__(
        self,
        store: LibraryStore,
        resources: ResourcesOverRpc,
        products: ProductService,
        codecs: CodecService,
    ) -> None:
        self._store = store
        self._resources = resources
        self._products = products
        self._codecs = codecs
        self._readers = FairScheduler("template libraries", READERS)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def source(self, tenant: str) -> KeptLibrary | None:
        """The library of a tenant."""
        return await self._store.head(tenant)

    async def drop(self, tenant: str) -> None:
        """Forget it; products that were made of it stay."""
        await self._store.delete(tenant)

    async def take(self, tenant: str, url: str) -> None:
        """Keep the library that was uploaded in the place of the one there is.

        Raises `InvalidInput` for what is no library; what is wrong with single templates is kept
        with them.
        """
        try:
            async with self._turn(tenant):
                name, content = await self._resources.read(tenant, url)
                async with self._readers.slot(tenant):
                    version, templates = await asyncio.to_thread(_templates, content, name)
        except NotFound as error:
            raise InvalidInput(error.message, field="url", code=NOT_READ) from error
        except NoTemplates as error:
            raise InvalidInput(str(error), field="url", code=EMPTY) from error
        except LibraryInvalid as error:
            raise InvalidInput(str(error), field="url", code=ODD_INDEX) from error
        except ArchiveInvalid as error:
            raise InvalidInput(str(error), field="url", code=NOT_READ) from error
        library = KeptLibrary(
            url=url, file_name=name, version=version, updated_at=now_ms(), templates=templates
        )
        await self._store.put(tenant, library, content)

    async def find(self, tenant: str, wanted: FindTemplates) -> tuple[list[ShownTemplate], int]:
        """The templates of a page, and how many there are."""
        words = wanted.keyword.lower()
        library = await self._store.head(tenant)
        found = [
            one
            for one in (library.templates if library else [])
            if words in f"{one.ref.model} {one.ref.name} {one.ref.vendor}".lower()
        ]
        start = (wanted.number - 1) * wanted.size
        page = found[start : start + wanted.size]
        there = await self._products.those(tenant, [one.ref.model for one in page])
        rows = [
            ShownTemplate(
                model=one.ref.model,
                name=one.ref.name,
                vendor=one.ref.vendor,
                imported=one.ref.model in there,
                faults=one.faults,
            )
            for one in page
        ]
        return rows, len(found)

    async def make(self, principal: Principal, models: Iterable[str]) -> list[ImportedTemplate]:
        """Make products of templates, or make them anew; one result for each."""
        async with self._turn(principal.tenant):
            return await self._make(principal, models)

    async def ensure(self, principal: Principal, model: str) -> None:
        """Make the product of a model that the tenant lacks, when its library has it.

        Raises `InvalidInput` with what is wrong with the template.
        """
        library = await self._store.head(principal.tenant)
        if model not in {one.ref.model for one in (library.templates if library else [])}:
            return
        async with self._turn(principal.tenant):
            if await self._products.has(principal.tenant, model):
                return  # made by another, for whom this has waited
            (made,) = await self._make(principal, [model])
        if made.faults:
            text = "; ".join(f"{one.field}: {one.reason}" for one in made.faults)
            raise InvalidInput(f"the template of {model} has faults: {text}", field="model")

    async def known(self, tenant: str, models: Collection[str]) -> set[str]:
        """Those of some models that a new device may be of: see `ensure`."""
        library = await self._store.head(tenant)
        ready = {one.ref.model for one in (library.templates if library else []) if not one.faults}
        there = await self._products.those(tenant, list(models))
        return {one for one in models if one == GENERIC or one in there or one in ready}

    async def labels(self, tenant: str, most: int) -> dict[str, str]:
        """Models that a device may be of: those of products, then those of the library."""
        labels = await self._products.labels(tenant, most)
        library = await self._store.head(tenant)
        for one in library.templates if library else []:
            if len(labels) < most and not one.faults:
                labels.setdefault(one.ref.model, label_of(one.ref.name, one.ref.model))
        return labels

    async def _make(self, principal: Principal, models: Iterable[str]) -> list[ImportedTemplate]:
        whole = await self._store.whole(principal.tenant)
        known = {one.ref.model: one for one in whole[0].templates} if whole else {}
        archive = await asyncio.to_thread(Archive, whole[1]) if whole else None
        return [
            await self._made(principal, archive, known.get(one), one)
            for one in dict.fromkeys(models)
        ]

    async def _made(
        self,
        principal: Principal,
        archive: Archive | None,
        wanted: KeptTemplate | None,
        model: str,
    ) -> ImportedTemplate:
        if archive is None or wanted is None:
            fault = Fault("model", "there is no such template in the library")
            return ImportedTemplate(model=model, faults=shown([fault]))
        if wanted.faults:
            return ImportedTemplate(model=model, faults=wanted.faults)
        try:
            template = await asyncio.to_thread(wanted.ref.read, archive)
            known = await self._products.find(principal.tenant, model)
            body = product_of(template, wanted.ref.name, known)
            codec = await self._codecs.checked(
                principal.tenant, codec_of(template), template.document
            )
            await self._products.put(principal, model, body, codec)
        except TemplateInvalid as error:
            return ImportedTemplate(model=model, faults=shown(error.faults))
        except (InvalidInput, Conflict, TooManyRequests) as error:
            faults = getattr(error, "faults", ()) or [Fault(error.field or "", error.message)]
            return ImportedTemplate(model=model, faults=shown(faults))
        return ImportedTemplate(model=model, faults=[], warning=warning_of(codec))

    def _turn(self, tenant: str) -> asyncio.Lock:
        """What a tenant makes goes one after the other."""
        return self._turns.setdefault(tenant, asyncio.Lock())


def _templates(content: bytes, file_name: str) -> tuple[str, list[KeptTemplate]]:
    """The version of a library, and its templates with what is wrong with them."""
    archive = Archive(content)
    library = read_library(archive, file_name.rpartition(".")[0] or file_name)
    until = time.thread_time() + LONGEST
    templates = []
    for one in library.models:
        templates.append(KeptTemplate(one, shown(_misnamed(one.model) + faults_of(archive, one))))
        if time.thread_time() > until:
            raise LibraryInvalid(f"takes more than {LONGEST} s of a processor to read")
    if len(msgspec.json.encode(templates)) > LARGEST_HEAD:
        raise LibraryInvalid(f"has more than {LARGEST_HEAD} bytes of names and faults")
    return library.version, templates


def _misnamed(model: str) -> list[Fault]:
    if MODEL.fullmatch(model) and model.lower() != GENERIC:
        return []
    return [Fault("id", "is no model: 1 to 64 letters, digits, '.', '_' or '-'")]
