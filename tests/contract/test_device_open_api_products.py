"""Products and RPS records."""

import copy

import pytest

from tests.contract.client import PRODUCT, Api, new_sn
from tests.contract.console import Console

pytestmark = pytest.mark.xdist_group("contract")

PAGE = {"pageSize": 100, "pageNumber": 1}


def _product(**fields) -> dict:
    return copy.deepcopy(PRODUCT) | {"snPrefixes": []} | fields


async def test_a_product_is_made_read_listed_and_deleted(api: Api) -> None:
    """PUT answers it without the TSL, GET with it; what was read can be put again."""
    model = new_sn("P-")
    made = await api.done("PUT", f"/products/{model}", _product(deviceType="SUB_DEVICE"))
    assert made["model"] == model
    assert (made["deviceType"], made["currentVersion"]) == ("SUB_DEVICE", "v1.0")
    assert made["versions"] == ["v1.0"]
    read = await api.done("GET", f"/products/{model}")
    assert {name: read[name] for name in made} == made
    again = {name: read[name] for name in ("name", "snPrefixes", "deviceType", "tsl")}
    await api.done("PUT", f"/products/{model}", again)
    assert (await api.done("GET", f"/products/{model}"))["tsl"] == read["tsl"]
    page = await api.done("GET", "/products", pageSize="1000")
    assert set(page) == {"pageSize", "pageNumber", "total", "content"}
    assert model in [entry["model"] for entry in page["content"]]
    assert await api.done("DELETE", f"/products/{model}") == model
    await api.fails(404, "GET", f"/products/{model}", code="product_not_found")


async def test_every_fault_of_a_tsl_is_named(api: Api) -> None:
    """With its path, all in one answer, and nothing is stored."""
    tsl = {
        "version": "v1.0",
        "properties": [
            {"id": "a", "accessMode": "X", "dataSpec": {"dataType": "INT"}},
            {"id": "b", "accessMode": "R", "dataSpec": {"dataType": "THING"}},
            {"id": "c.d", "accessMode": "R", "dataSpec": {"dataType": "INT", "parentId": "c"}},
            {
                "id": "e",
                "accessMode": "R",
                "dataSpec": {"dataType": "INT", "validator": {"min": 5, "max": 1}},
            },
            {"id": "e", "accessMode": "R", "dataSpec": {"dataType": "INT"}},
            {"id": "f", "accessMode": "R", "dataSpec": {"dataType": "ENUM"}},
            "not an object",
        ],
        "events": [{"id": "g", "type": "LOUD", "outputs": []}],
        "services": [
            {"id": "h", "callType": "LATER", "inputs": []},
            {"id": "i", "inputs": [{"id": "i.x", "ref": "nothing"}]},
        ],
    }
    model = new_sn("P-")
    places = [
        *("properties[0].accessMode", "properties[1].dataSpec.dataType", "properties[2]"),
        *("properties[3].dataSpec.validator", "properties[4].id", "properties[5].dataSpec.mapping"),
        *("properties[6]", "events[0].type", "services[0].callType", "services[1].inputs[0]"),
    ]
    await api.fails(
        400,
        "PUT",
        f"/products/{model}",
        _product(tsl=tsl),
        names=[f"tsl.{place}" for place in places],
        code="parameter_validation_failed",
    )
    await api.fails(404, "GET", f"/products/{model}")


async def test_a_changed_tsl_needs_another_version_while_it_is_used(api: Api) -> None:
    """409; under another version new devices get it, and `tslVersion` moves a device."""
    model = new_sn("P-")
    await api.done("PUT", f"/products/{model}", _product())
    identity = await api.add(model=model)
    changed = _product()
    changed["tsl"]["properties"][0]["dataSpec"]["validator"]["max"] = 71
    await api.fails(
        409,
        "PUT",
        f"/products/{model}",
        changed,
        names=["tsl.version"],
        code="tsl_version_in_use",
    )
    changed["tsl"]["version"] = "v2.0"
    made = await api.done("PUT", f"/products/{model}", changed)
    assert (made["currentVersion"], sorted(made["versions"])) == ("v2.0", ["v1.0", "v2.0"])
    tsl = f"/devices/{identity}/thing-specification"
    assert (await api.done("GET", tsl))["version"] == "v1.0"
    move = {"deviceId": identity, "name": "n", "tslVersion": "v2.0"}
    await api.done("PUT", "/devices", move)
    moved = await api.done("GET", tsl)
    assert moved["version"] == "v2.0"
    assert moved["properties"][0]["dataSpec"]["validator"]["max"] == 71
    await api.fails(
        400, "PUT", "/devices", move | {"tslVersion": "v9.0"}, names=["tslVersion", "v9.0"]
    )
    await api.fails(409, "DELETE", f"/products/{model}", code="product_in_use")


async def test_a_tsl_nobody_uses_may_change_under_its_version(api: Api) -> None:
    """The version counts as used by devices only."""
    model = new_sn("P-")
    await api.done("PUT", f"/products/{model}", _product())
    changed = _product()
    changed["tsl"]["properties"][0]["name"] = "Heat"
    await api.done("PUT", f"/products/{model}", changed)
    read = await api.done("GET", f"/products/{model}")
    assert read["tsl"]["properties"][0]["name"] == "Heat"


async def test_the_longest_prefix_decides_else_generic(api: Api) -> None:
    """Without regard to case; `model` overrules; a prefix has one product."""
    prefix = new_sn("Q")
    short, long = new_sn("P-"), new_sn("P-")
    await api.done("PUT", f"/products/{short}", _product(snPrefixes=[prefix]))
    await api.done("PUT", f"/products/{long}", _product(snPrefixes=[f"{prefix}77".lower()]))
    for sn, fields, model in (
        (f"{prefix}1", {}, short),
        (f"{prefix}778".lower(), {}, long),
        (f"{prefix}779", {"model": short}, short),
        (f"Z{prefix}", {}, "generic"),
    ):
        identity = await api.add(sn, **fields)
        assert (await api.done("GET", f"/devices/{identity}"))["model"] == model
    await api.fails(
        409,
        "PUT",
        f"/products/{new_sn('P-')}",
        _product(snPrefixes=[prefix]),
        names=["snPrefixes"],
        code="sn_prefix_taken",
    )
    body = {"snDevEUI": new_sn(), "name": "n", "model": "no-such"}
    await api.fails(400, "POST", "/devices", body, names=["model"])


async def test_the_generic_product_takes_everything(api: Api) -> None:
    """Any property is stored, written and shown; it cannot be changed."""
    sn = new_sn("ZZ")
    identity = await api.add(sn)
    key = (await api.done("POST", f"/devices/{identity}/credentials"))["key"]
    values = {"anything": [1], "t": 1.5}
    await api.report(sn, key, {"properties": values})
    page = await api.done("GET", f"/devices/{identity}/properties/history")
    assert page["list"][0]["properties"] == values
    given = {"properties": {"speed": 3}}
    assert await api.done("PATCH", f"/devices/{identity}/properties", given) == given
    for method in ("PUT", "DELETE"):
        body = _product() if method == "PUT" else None
        await api.fails(409, method, "/products/generic", body, code="product_built_in")


async def test_an_rps_record_lives_and_dies(alone: Api) -> None:
    """Every result text is `success`; a second profile replaces the first."""
    sn = new_sn()
    body = {"sn": sn, "profileUrl": "https://example.com/a?b=c"}
    assert await alone.done("POST", "/rps/profile", body) == "success"
    page = await alone.done("POST", "/rps/search", {"pageSize": "10", "pageNumber": "1"})
    assert page == {"pageSize": 10, "pageNumber": 1, "total": 1, "content": [body]}
    body["profileUrl"] = "http://example.com:8080/"
    assert await alone.done("POST", "/rps/profile", body) == "success"
    assert (await alone.done("POST", "/rps/search", PAGE))["content"] == [body]
    assert await alone.done("DELETE", f"/rps/{sn.lower()}") == "success"
    assert (await alone.done("POST", "/rps/search", PAGE))["content"] == []
    await alone.fails(404, "DELETE", f"/rps/{sn}", code="rps_record_not_found", names=["sn"])


async def test_rps_records_are_sorted_and_paged(alone: Api) -> None:
    """By both fields, both ways; pages do not overlap."""
    given = [
        (new_sn(f"{letter}"), f"https://example.com/{9 - at}") for at, letter in enumerate("bca")
    ]
    for sn, url in given:
        await alone.done("POST", "/rps/profile", {"sn": sn, "profileUrl": url})
    for field, column in (("sn", 0), ("profileUrl", 1)):
        for direction in ("asc", "DESC"):
            wanted = sorted(
                (pair[column].upper() if column == 0 else pair[column] for pair in given),
                reverse=direction == "DESC",
            )
            found: list[str] = []
            for number in (1, 2):
                body = {
                    "pageSize": 2,
                    "pageNumber": number,
                    "sorts": [{"property": field, "direction": direction}],
                }
                page = await alone.done("POST", "/rps/search", body)
                assert page["total"] == 3
                found += [entry[field] for entry in page["content"]]
            assert [text.upper() if column == 0 else text for text in found] == wanted


async def test_an_sn_is_a_device_or_has_a_record(api: Api, foreign: Api) -> None:
    """409 both ways, also for another application; deleting frees the SN."""
    sn = new_sn()
    body = {"sn": sn, "profileUrl": "https://example.com"}
    await api.done("POST", "/rps/profile", body)
    device = {"snDevEUI": sn.lower(), "name": "n"}
    for caller in (api, foreign):
        await caller.fails(
            409, "POST", "/devices", device, names=["snDevEUI"], code="rps_record_exists"
        )
    await foreign.fails(409, "POST", "/rps/profile", body, names=["sn"], code="rps_record_exists")
    await foreign.fails(404, "DELETE", f"/rps/{sn}")
    await api.done("DELETE", f"/rps/{sn}")
    added = await api.done("POST", "/devices", device)
    for caller in (api, foreign):
        await caller.fails(
            409, "POST", "/rps/profile", body, names=["sn"], code="device_already_exists"
        )
    await api.done("DELETE", f"/devices/{added['deviceId']}")
    await api.done("POST", "/rps/profile", body)


async def test_people_see_the_records_of_every_application(
    api: Api, foreign: Api, admin: Console, other_admin: Console
) -> None:
    """By the beginning of an SN; who manages products deletes one, other tenants see none."""
    begin = new_sn("RP")
    for number, application in enumerate((api, foreign)):
        body = {"sn": f"{begin}{number}", "profileUrl": "https://example.com/a.json"}
        await application.done("POST", "/rps/profile", body)
    viewer = await admin.person("product.view")

    found = await viewer.done("POST", "/rps/search", {"sn": begin.lower(), "page_size": 1})
    assert (found["total"], len(found["content"])) == (2, 1)
    assert set(found["content"][0]) == {"sn", "profile_url", "application_id"}
    assert (await other_admin.done("POST", "/rps/search", {"sn": begin}))["total"] == 0
    await other_admin.fails(404, "rps_record_not_found", "DELETE", f"/rps/{begin}0")
    await viewer.fails(403, "forbidden_permission", "DELETE", f"/rps/{begin}0")
    await admin.ask("DELETE", f"/rps/{begin}0")
    assert (await admin.done("POST", "/rps/search", {"sn": begin}))["total"] == 1
    await viewer.close()
