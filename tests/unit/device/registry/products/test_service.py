"""Choosing products, and paging with the built-in one among them."""

from typing import Any

import pytest

from libs.common.errors import InvalidInput
from libs.common.identity import Principal, PrincipalKind
from services.device.registry.products.service import ProductService
from services.device.things.product_model import Product, ProductCodec, PutProduct
from services.device.things.product_store import ProductUpdate

MINE = Principal(PrincipalKind.APPLICATION, "default", "1", name="mine")
NO_TSLS: Any = None


def product(model: str, *prefixes: str) -> Product:
    return Product(
        model=model,
        name=model,
        sn_prefixes=list(prefixes),
        device_type="COMMON",
        current_version="v1",
        versions=["v1"],
    )


class FakeStore:
    """Products in memory, of one tenant."""

    def __init__(self, *products: Product) -> None:
        self.products = {entry.model: entry for entry in products}
        self.wanted: list[ProductUpdate] = []

    async def find(self, tenant: str, model: str) -> Product | None:
        return self.products.get(model)

    async def find_by_prefixes(self, tenant: str, prefixes: list[str]) -> list[Product]:
        wanted = set(prefixes)
        return [entry for entry in self.products.values() if wanted & set(entry.sn_prefixes)]

    async def page(self, tenant: str, skip: int, limit: int) -> tuple[list[Product], int]:
        ordered = [self.products[model] for model in sorted(self.products)]
        return ordered[skip : skip + limit], len(ordered)

    async def put(self, wanted: ProductUpdate, codec: ProductCodec | None = None) -> Product:
        self.wanted.append(wanted)
        return product(wanted.model, *wanted.sn_prefixes)

    async def delete(self, tenant: str, model: str) -> bool:
        return self.products.pop(model, None) is not None


@pytest.mark.parametrize(
    ("serial", "expected"),
    [
        ("6785", "LONG"),
        ("6785C", "LONG"),
        ("6784", "SHORT"),
        ("99", "LONG"),
        ("9", "generic"),
        ("5678", "generic"),
    ],
)
async def test_the_longest_prefix_wins(serial: str, expected: str) -> None:
    """Whatever other prefixes a product has; no prefix means generic."""
    service = ProductService(
        FakeStore(product("SHORT", "67", "1"), product("LONG", "6785", "99")), NO_TSLS
    )
    assert (await service.choose_for_device("default", None, serial)).model == expected


async def test_a_named_product_must_be_there() -> None:
    """It overrules the prefixes, `generic` too."""
    service = ProductService(FakeStore(product("A", "67"), product("B")), NO_TSLS)
    assert (await service.choose_for_device("default", "B", "67")).model == "B"
    assert (await service.choose_for_device("default", "generic", "67")).model == "generic"
    with pytest.raises(InvalidInput) as refusal:
        await service.choose_for_device("default", "C", "67")
    assert refusal.value.field == "model"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
async def test_pages_show_every_product_once(size: int) -> None:
    """The built-in one first, whatever the size of a page."""
    service = ProductService(FakeStore(product("B"), product("A"), product("C")), NO_TSLS)
    seen: list[str] = []
    for number in range(1, 6):
        page = await service.list_page(MINE, number, size)
        assert page.total == 4
        assert len(page.content) <= size
        seen += [entry.model for entry in page.content]
    assert seen == ["generic", "A", "B", "C"]


async def test_prefixes_are_kept_in_upper_case_and_once() -> None:
    """SNs are compared without case."""
    store = FakeStore()
    body = PutProduct(name="x", tsl={"version": "v1"}, sn_prefixes=["ab", "AB", "C-1"])
    await ProductService(store, NO_TSLS).put(MINE, "A", body)
    assert store.wanted[0].sn_prefixes == ["AB", "C-1"]


async def test_a_document_is_the_same_whatever_its_spelling() -> None:
    """Two vendors' spellings of one TSL have one hash, so that importing again is no change."""
    store = FakeStore()
    service = ProductService(store, NO_TSLS)
    spec = {"id": "t", "accessMode": "R", "dataSpec": {"dataType": "INT"}}
    other = {"accessMode": "r", "id": "t", "propertyKey": "t", "dataSpec": {"dataType": "int"}}
    for entry in (spec, other):
        tsl = {"version": "v1", "properties": [entry]}
        await service.put(MINE, "A", PutProduct(name="x", tsl=tsl))
    assert store.wanted[0].tsl == store.wanted[1].tsl
