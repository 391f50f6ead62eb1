"""Libraries of device templates are read within bounds of memory, and beside the event loop."""

import asyncio
import threading
from typing import Any, cast

import pytest

from libs.common.errors import InvalidInput
from libs.common.identity import Principal, PrincipalKind
from services.device.registry.products import templates as service
from services.device.registry.products.template_library import Archive
from services.device.registry.products.templates import (
    LibraryStore,
    ResourceClient,
    StoredLibrary,
    TemplateService,
)
from services.device.things.product_model import ProductCodec
from tests.templates import library, small

USER = Principal(kind=PrincipalKind.USER, tenant="acme", subject="1")


class Uploads:
    """One upload, which is there when it is let go."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked = 0
        self.there = asyncio.Event()

    async def read_upload(self, _: str, __: str) -> tuple[str, bytes]:
        self.asked += 1
        await self.there.wait()
        return "acme.zip", self.content


class Kept:
    """The library of a tenant, in memory."""

    def __init__(self) -> None:
        self.whole_one: tuple[StoredLibrary, bytes] | None = None

    async def put(self, _: str, head: StoredLibrary, content: bytes) -> None:
        self.whole_one = (head, content)

    async def find(self, _: str) -> StoredLibrary | None:
        return self.whole_one[0] if self.whole_one else None

    async def find_with_archive(self, _: str) -> tuple[StoredLibrary, bytes] | None:
        return self.whole_one


class Products:
    """Products of a tenant with codecs that are always right."""

    def __init__(self) -> None:
        self.made: list[str] = []

    async def exists(self, _: str, model: str) -> bool:
        await asyncio.sleep(0)
        return model in self.made

    async def find(self, *_: object) -> None:
        return None

    async def put(self, _: Principal, model: str, *__: object) -> None:
        await asyncio.sleep(0)
        self.made.append(model)

    async def validate(self, *_: object) -> ProductCodec:
        return ProductCodec(version="1", scripts={}, decoder=[], encoder=[], examples=[])


def templates(uploads: Uploads, kept: Kept, products: Any = None) -> TemplateService:
    store, resources = cast("LibraryStore", kept), cast("ResourceClient", uploads)
    return TemplateService(store, resources, products=products, codecs=products)


async def test_a_tenant_has_one_upload_in_memory_at_a_time() -> None:
    """Those who wait for it have not asked for theirs."""
    uploads = Uploads(library(a1=small("a1")))
    taken = templates(uploads, Kept())
    async with asyncio.TaskGroup() as group:
        takes = [group.create_task(taken.replace_library("acme", "u")) for _ in range(5)]
        other = group.create_task(taken.replace_library("other", "u"))
        while uploads.asked < 2:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert uploads.asked == 2
        uploads.there.set()
    assert uploads.asked == len([*takes, other])


async def test_a_library_with_too_much_to_tell_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and faults are kept in one document with the archive."""
    monkeypatch.setattr(service, "MAX_LIBRARY_HEAD_BYTES", 100)
    uploads, kept = Uploads(library(a1=small("a1"))), Kept()
    uploads.there.set()
    with pytest.raises(InvalidInput, match="more than 100 bytes of names and faults"):
        await templates(uploads, kept).replace_library("acme", "u")
    assert kept.whole_one is None


async def test_a_library_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tenants wait for each other: a thousand templates of many properties are minutes."""
    monkeypatch.setattr(service, "VALIDATION_SECONDS", 0)
    uploads, kept = Uploads(library(a1=small("a1"))), Kept()
    uploads.there.set()
    with pytest.raises(InvalidInput, match="takes more than 0 s of a processor"):
        await templates(uploads, kept).replace_library("acme", "u")


async def test_archives_are_opened_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of thousands of files takes a while."""
    opened = set()

    def archive(content: bytes) -> Archive:
        opened.add(threading.current_thread())
        return Archive(content)

    monkeypatch.setattr(service, "Archive", archive)
    uploads = Uploads(library(a1=small("a1")))
    uploads.there.set()
    taken = templates(uploads, Kept())
    await taken.replace_library("acme", "u")
    await taken.create_products(USER, ["OTHER"])
    assert opened
    assert threading.current_thread() not in opened


async def test_many_first_devices_make_a_product_once() -> None:
    """An import adds hundreds at a time."""
    uploads, products = Uploads(library(a1=small("a1"))), Products()
    uploads.there.set()
    taken = templates(uploads, Kept(), products)
    await taken.replace_library("acme", "u")
    await asyncio.gather(*(taken.create_if_missing(USER, "A1") for _ in range(5)))
    assert products.made == ["A1"]
