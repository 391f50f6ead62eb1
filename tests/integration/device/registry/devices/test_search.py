"""Searching devices: filters, orders, pages."""

from typing import Any

import pytest
import pytest_asyncio

from tests.integration.device.registry.devices.platform import Platform, tsl

EUI = "24E124136B502217"


@pytest.fixture
def platform(started: Platform) -> Platform:
    """The features with what `ids` put there: no test here changes it."""
    return started


@pytest_asyncio.fixture(scope="module")
async def ids(started: Platform) -> dict[str, int]:
    """Four devices of mine, one of a sibling."""
    await started.empty()
    await started.mine.put_product("AM319-HCHO", tsl(), deviceType="SUB_DEVICE")
    added = {
        "a": await started.mine.add(EUI, name="Hall (north)", model="AM319-HCHO", project="P1"),
        "b": await started.mine.add("SN-b", name="hall south", tag=["red", "blue"]),
        "c": await started.mine.add("sn-c", name="Cellar", tag=["blue"], project="P2"),
        "d": await started.mine.add("SN-cc", name="cellar 2", autoProvision=True, config={}),
    }
    await started.sibling.add("SN-e", name="Hall")
    facts = {
        "a": {"connectStatus": "ONLINE", "electricity": 80, "firmwareVersion": "v1.3"},
        "b": {"connectStatus": "OFFLINE", "electricity": 5, "firmwareVersion": "1v3"},
        "c": {"imei": "86Ab", "electricity": 3, "hardwareVersion": "V2.0", "lastUpdateTime": 7},
    }
    for key, fields in facts.items():
        await started.database["devices"].update_one({"_id": added[key]}, {"$set": fields})
    return added


async def search(platform: Platform, **asked: Any) -> Any:
    body = {"pageSize": 10, "pageNumber": 1, **asked}
    return await platform.mine.done("POST", "/devices/search", body)


async def keys(platform: Platform, ids: dict[str, int], **asked: Any) -> str:
    names = {number: key for key, number in ids.items()}
    found = await search(platform, **asked)
    return "".join(names[device["deviceId"]] for device in found["content"])


async def test_filters_narrow(
    platform: Platform, ids: dict[str, int], subtests: pytest.Subtests
) -> None:
    """Each alone, several together, blank ones not at all."""
    for filters, expected in [
        ({}, "abcd"),
        ({"sn": "sn-c"}, "c"),
        ({"sn": "SN-C"}, "c"),
        ({"sn": "SN"}, ""),
        ({"devEUI": EUI.lower()}, "a"),
        ({"devEUI": EUI[:-1]}, ""),
        ({"imei": "86aB"}, "c"),
        ({"imei": "86"}, ""),
        ({"name": "HALL"}, "ab"),
        ({"name": "(north)"}, "a"),
        ({"name": "."}, ""),
        ({"model": "am319"}, "a"),
        ({"firmwareVersion": "V1.3"}, "a"),
        ({"hardwareVersion": "2"}, "c"),
        ({"keyword": "cellar"}, "cd"),
        ({"keyword": "sn-C"}, "cd"),
        ({"keyword": "6b50"}, "a"),
        ({"connectStatus": ["ONLINE", "OFFLINE"]}, "ab"),
        ({"connectStatus": ["DISCONNECT"]}, "cd"),
        ({"connectStatus": []}, "abcd"),
        ({"deviceType": ["SUB_DEVICE"]}, "a"),
        ({"rpsStatus": ["WAITING"]}, "d"),
        ({"autopStatus": ["DISABLE"]}, "abc"),
        ({"electricityMax": 5}, "bc"),
        ({"electricityMin": 5, "electricityMax": "80"}, "ab"),
        ({"project": "P1"}, "a"),
        ({"project": "P"}, ""),
        ({"tag": ["red", "green"]}, "b"),
        ({"tag": "blue"}, "bc"),
        ({"applicationId": 1}, "abcd"),
        ({"applicationId": "2"}, ""),
        ({"name": "hall", "connectStatus": ["OFFLINE"], "sn": ""}, "b"),
        ({"name": None, "tag": None}, "abcd"),
    ]:
        with subtests.test(str((filters, expected))):
            assert await keys(platform, ids, **filters) == expected


async def test_any_field_sorts(
    platform: Platform, ids: dict[str, int], subtests: pytest.Subtests
) -> None:
    """In any case of the direction; the id decides between equals."""
    for sorts, expected in [
        ([{"property": "deviceId", "direction": "desc"}], "dcba"),
        ([{"property": "sn", "direction": "ASC"}], "abcd"),
        ([{"property": "electricity", "direction": "Desc"}], "abcd"),
        ([{"property": "electricity"}], "dcba"),
        ([{"property": "application", "direction": "desc"}], "dcba"),
        ([{"property": "project", "direction": "asc"}], "bdac"),
        (
            [
                {"property": "project", "direction": "asc"},
                {"property": "name", "direction": "desc"},
            ],
            "bdac",
        ),
        ([{"property": "lastUpdateTime", "direction": "desc"}], "cdba"),
        ([], "abcd"),
        (None, "abcd"),
    ]:
        with subtests.test(str((sorts, expected))):
            assert await keys(platform, ids, sorts=sorts) == expected


async def test_every_field_of_the_record_sorts(
    platform: Platform, ids: dict[str, int], subtests: pytest.Subtests
) -> None:
    """A property is a name of the record."""
    for name in [
        *("sn", "deviceId", "devEUI", "imei", "name", "description", "project", "tag", "model"),
        *("deviceType", "connectStatus", "licenseStatus", "autopStatus", "rpsStatus"),
        *("hardwareVersion", "firmwareVersion", "electricity", "lastUpdateTime", "application"),
        *("mac", "wlanMac"),
    ]:
        with subtests.test(str(name)):
            assert (
                len(await keys(platform, ids, sorts=[{"property": name, "direction": "desc"}])) == 4
            )


async def test_pages_follow_each_other(platform: Platform, ids: dict[str, int]) -> None:
    """Numbers may be decimal strings; behind the last page there is nothing."""
    pages = [await search(platform, pageSize="3", pageNumber=number) for number in (1, "2", 3)]
    assert [[page["pageSize"], page["pageNumber"], page["total"]] for page in pages] == [
        [3, 1, 4],
        [3, 2, 4],
        [3, 3, 4],
    ]
    assert [len(page["content"]) for page in pages] == [3, 1, 0]


async def test_no_device_is_an_empty_page(platform: Platform) -> None:
    """`content` is an empty list, `total` 0."""
    body = {"pageSize": 10, "pageNumber": 1}
    found = await platform.foreign.done("POST", "/devices/search", body)
    assert found == {"pageSize": 10, "pageNumber": 1, "total": 0, "content": []}


async def test_a_bad_search_is_refused(platform: Platform, subtests: pytest.Subtests) -> None:
    """400 that names the field."""
    for asked, named in [
        ({"pageSize": 0}, "pageSize"),
        ({"pageSize": "many"}, "pageSize"),
        ({"pageSize": None}, "pageSize"),
        ({"pageNumber": 0}, "pageNumber"),
        ({"pageNumber": -1}, "pageNumber"),
        ({"pageNumber": 10**10}, "pageNumber"),
        ({"sorts": [{"property": "$where"}]}, "sorts[0].property"),
        ({"sorts": [{"direction": "asc"}]}, "property"),
        ({"sorts": [{"property": "sn", "direction": "up"}]}, "sorts[0].direction"),
        ({"connectStatus": ["AWAY"]}, "connectStatus"),
        ({"connectStatus": "ONLINE"}, "connectStatus"),
        ({"electricityMin": 101}, "electricityMin"),
        ({"electricityMin": 6, "electricityMax": 5}, "electricityMin"),
        ({"name": {"$ne": 1}}, "name"),
        ({"name": "a\x00"}, "name"),
        ({"keyword": "x" * 129}, "keyword"),
        ({"colour": "red"}, "colour"),
    ]:
        with subtests.test(str((asked, named))):
            body = {"pageSize": 10, "pageNumber": 1, **asked}
            refusal = await platform.mine.refused(400, "POST", "/devices/search", body)
            assert named in refusal["errMsg"]


@pytest.mark.parametrize("missing", ["pageSize", "pageNumber"])
async def test_a_page_must_be_named(platform: Platform, missing: str) -> None:
    """Both numbers are required."""
    body = {"pageSize": 10, "pageNumber": 1}
    del body[missing]
    refusal = await platform.mine.refused(400, "POST", "/devices/search", body)
    assert missing in refusal["errMsg"]
