"""Text is found by grams as a plain regular expression finds it."""

from typing import Any

import pytest
import pytest_asyncio

from libs.common.bus import Outbox
from libs.common.store.mongo import build_text_condition, literal_pattern
from services.device import migrations
from services.device.registry.devices.schemas import SearchDevices
from services.device.registry.devices.search import build_query
from services.device.registry.devices.service import new_device
from services.device.registry.products.service import generic_product
from services.device.telemetry.latest_values import LatestValues
from services.device.things import device_search
from services.device.things.device_search import extract_ngrams
from services.device.things.device_store import DeviceStore
from services.device.things.model import ApplicationRef, device_document
from services.device.things.schemas import SortBy
from tests.integration.device.registry.devices.platform import Platform
from tests.limits import limits_of

NAMES = [
    *("Straße 5", "STRASSE 5", "strasse fünf", "GRÖSSE \u1e9e", "größe ß", "\u017fpaß", "SPASS"),
    *("Kelvin \u212a", "kelvin k", "\u0130stanbul", "istanbul", "ISI \u0131s\u0131", "\ufb01ne"),
    *("fine", "Ωmega µ", "ωMEGA \u03bc", "ΣΊΣΥΦΟΣ", "σίσυφος", "rocket 🚀🚀 abc", "a.b(c)"),
    *("$price [x]", "héllo", "HÉLLO", "ab", "Meter 765 in hall 1", "meter 1765", "abc-765"),
]
"""The number of a name is its device's id."""


@pytest_asyncio.fixture
async def store(platform: Platform) -> DeviceStore:
    """Devices of those names, `sn-Abc{number}`, and one of another application."""
    rows = []
    for number, name in enumerate([*NAMES, NAMES[0]]):
        device = new_device(number, f"sn-Abc{number:03}", "default", generic_product())
        device.name, device.application = name, ApplicationRef(1 + number // len(NAMES), "one")
        rows.append(device_document(device) | {"grams": extract_ngrams(name, device.sn_key)})
    mongo = platform.mongo
    await mongo.database["devices"].insert_many(rows)
    outbox = Outbox(mongo.database, platform.bus)  # type: ignore[arg-type]
    return DeviceStore(mongo, outbox, limits_of(), LatestValues(mongo.database))


def parts(text: str) -> set[str]:
    """What is looked for: parts of a text, in several spellings."""
    cut = {text[at : at + size] for size in (2, 3, 5, 20) for at in range(0, len(text), 4)}
    return {form for one in cut for form in (one, one.swapcase())}


TEXTS = sorted({part[:128] for name in NAMES for part in parts(name)} | parts("SN-ABC765"))[::3]

BOUNDS = (1000, 10_000), (1, 2)
"""What `FEW_DEVICES` and `MANY_DEVICES` may be, so that all is rare, and all is common."""


async def plain(platform: Platform, condition: dict[str, Any]) -> list[int]:
    mine = {"application.applicationId": 1, "tenant": "default"}
    found = platform.database["devices"].find({**mine, **condition}, {"_id": 1}, sort=[("_id", 1)])
    return [device["_id"] async for device in found]


async def ids(store: DeviceStore, **asked: Any) -> tuple[list[int], int]:
    search = SearchDevices(**{"page_size": 100, "page_number": 1, **asked})
    found, total = await store.search(build_query("default", 1, search))
    return [device.id async for device in found], total


async def test_a_device_is_found_by_its_name_of_now(platform: Platform) -> None:
    """Not by the one that it had."""
    device = await platform.mine.add("SN-1", name="Hall north")

    async def named(text: str) -> int:
        body = {"pageSize": 10, "pageNumber": 1, "name": text}
        found = await platform.mine.done("POST", "/devices/search", body)
        return int(found["total"])

    assert (await named("north"), await named("south")) == (1, 0)
    await platform.mine.done("PUT", "/devices", {"deviceId": device, "name": "Hall south"})
    assert (await named("north"), await named("south")) == (0, 1)


async def test_names_and_keywords_are_found_as_they_are_written(
    platform: Platform, store: DeviceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the alphabet and the case; of an SN as of a name; of few as of many."""
    for text in TEXTS:
        named = {"name": build_text_condition(text)}
        by_name = await plain(platform, named)
        serial = {"snKey": {"$regex": literal_pattern(text.upper())}}
        by_both = await plain(platform, {"$or": [named, serial]})
        for few, many in BOUNDS:
            monkeypatch.setattr(device_search, "FEW_DEVICES", few)
            monkeypatch.setattr(device_search, "MANY_DEVICES", many)
            assert await ids(store, name=text) == (by_name, len(by_name)), (text, few)
            assert await ids(store, keyword=text) == (by_both, len(by_both)), (text, few)


@pytest.mark.parametrize("bounds", BOUNDS, ids=["rare", "common"])
@pytest.mark.parametrize("column", ["deviceId", "name", "sn"])
async def test_pages_of_a_text_are_in_order(
    platform: Platform,
    store: DeviceStore,
    monkeypatch: pytest.MonkeyPatch,
    bounds: tuple[int, int],
    column: str,
) -> None:
    """Each device on one page, for whatever order, however many devices there are."""
    monkeypatch.setattr(device_search, "FEW_DEVICES", bounds[0])
    monkeypatch.setattr(device_search, "MANY_DEVICES", bounds[1])
    stored = {"deviceId": "_id", "name": "name", "sn": "snKey"}[column]
    for way, direction in (("asc", 1), ("desc", -1)):
        found: list[int] = []
        for number in range(1, 12):
            asked = {"page_size": 3, "page_number": number, "sorts": [SortBy(column, way)]}
            page, total = await ids(store, keyword="abc", **asked)
            assert total == len(NAMES)
            found += page
        order = [(stored, direction), ("_id", direction)][: 1 if stored == "_id" else 2]
        mine = {"application.applicationId": 1}
        rows = platform.database["devices"].find(mine, {"_id": 1}, sort=order)
        assert found == [row["_id"] async for row in rows]


async def test_a_device_that_was_there_before_grams_is_found(
    platform: Platform, store: DeviceStore
) -> None:
    """As it is, and through its grams when the migration has given it some."""
    devices = platform.database["devices"]
    await devices.update_many({}, {"$unset": {"grams": ""}})
    expected = await plain(platform, {"name": build_text_condition("STRASSE")})
    assert await ids(store, name="STRASSE") == (expected, len(expected))
    await migrations._store_ngrams(platform.mongo.database)
    assert await devices.count_documents({"grams": None}) == 0
    assert await ids(store, name="STRASSE") == (expected, len(expected))
