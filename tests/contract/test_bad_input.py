"""Every bad input gets its 4xx, in the API's envelope, naming the field; never a 5xx."""

import asyncio
from typing import Any

import pytest

from tests.contract.client import MODEL, Api, new_sn, refused
from tests.contract.conftest import Thing

pytestmark = pytest.mark.xdist_group("contract")

DEVICE = {"snDevEUI": "CTBAD", "name": "n"}
PAGE = {"pageSize": 1, "pageNumber": 1}
RPS = {"sn": "CTBAD", "profileUrl": "https://example.com"}
TASK = {"type": "TSL", "deviceIds": ["{id}"], "config": {"properties": {"led": True}}}
TSL = {"version": "v1.0", "properties": []}
PRODUCT = {"name": "n", "tsl": TSL}
DEEP = b'{"properties":{"label":' + b"[" * 20_000 + b"]" * 20_000 + b"}}"
PATCH, CALL, HISTORY = (
    "/devices/{id}" + path
    for path in (
        "/properties",
        "/services/call",
        "/properties/history",
    )
)

Row = tuple[int, str, str, Any, str]
ROWS: list[Row] = [
    # a body that cannot be read
    *(
        (400, method, path, body, "")
        for method, path in (
            ("POST", "/devices"),
            ("PUT", "/devices"),
            ("POST", "/devices/search"),
            ("PATCH", PATCH),
            ("POST", CALL),
            ("POST", "/tasks"),
            ("POST", "/rps/profile"),
            ("POST", "/rps/search"),
            ("PUT", "/products/CT-BAD"),
        )
        for body in (b"", b"{", b"[]", b"null", b'"text"', b"{'a': 1}", b"\xff\xfe", b'{"a":\x00}')
    ),
    (400, "PATCH", PATCH, DEEP, ""),
    (
        400,
        "PUT",
        "/products/CT-BAD",
        b'{"name":"n","tsl":' + b'{"a":' * 30_000 + b"1" + b"}" * 30_001,
        "",
    ),
    # wrong types, missing and unknown fields, lengths
    (400, "POST", "/devices", {"name": "n"}, "snDevEUI"),
    (400, "POST", "/devices", {"snDevEUI": "CTBAD"}, "name"),
    (400, "POST", "/devices", DEVICE | {"snDevEUI": 5}, "snDevEUI"),
    (400, "POST", "/devices", DEVICE | {"snDevEUI": "a.b"}, "snDevEUI"),
    (400, "POST", "/devices", DEVICE | {"snDevEUI": ""}, "snDevEUI"),
    (400, "POST", "/devices", DEVICE | {"snDevEUI": "x" * 65}, "snDevEUI"),
    (400, "POST", "/devices", DEVICE | {"snDevEUI": "a\x00b"}, "snDevEUI"),
    (400, "POST", "/devices", DEVICE | {"name": " "}, "name"),
    (400, "POST", "/devices", DEVICE | {"name": "a\x00b"}, "name"),
    (400, "POST", "/devices", DEVICE | {"name": None}, "name"),
    (400, "POST", "/devices", DEVICE | {"name": "x" * 129}, "name"),
    (400, "POST", "/devices", DEVICE | {"tag": "x"}, "tag"),
    (400, "POST", "/devices", DEVICE | {"tag": ["x"] * 21}, "tag"),
    (400, "POST", "/devices", DEVICE | {"autoProvision": "true"}, "autoProvision"),
    (400, "POST", "/devices", DEVICE | {"autoProvision": True}, "config"),
    (400, "POST", "/devices", DEVICE | {"autoProvision": True, "profile": "{"}, "profile"),
    (400, "POST", "/devices", DEVICE | {"model": "no-such"}, "model"),
    (400, "POST", "/devices", DEVICE | {"nonsense": 1}, "nonsense"),
    (400, "POST", "/devices", {"sn": "CTBAD", "devEUI": "x", "name": "n"}, "snDevEUI"),
    (
        400,
        "POST",
        "/devices",
        DEVICE
        | {
            "model": MODEL,
            "autoProvision": True,
            "config": {"type": "TSL", "properties": {"led": 7}},
        },
        "config.properties.led",
    ),
    (400, "PUT", "/devices", {"name": "n"}, "deviceId"),
    (400, "PUT", "/devices", {"deviceId": "{id}"}, "name"),
    (400, "PUT", "/devices", {"deviceId": "x", "name": "n"}, "deviceId"),
    (400, "PUT", "/devices", {"deviceId": 1.5, "name": "n"}, "deviceId"),
    (400, "PUT", "/devices", {"deviceId": 2**63, "name": "n"}, "deviceId"),
    (400, "PUT", "/devices", {"deviceId": 10**400, "name": "n"}, "deviceId"),
    (400, "PUT", "/devices", {"deviceId": "{id}", "name": "n", "tslVersion": "v9"}, "tslVersion"),
    # pages, orders, filters
    *(
        (400, "POST", path, PAGE | {field: value}, field)
        for path in ("/devices/search", "/rps/search")
        for field in PAGE
        for value in (0, -1, "x", "", None, 1.5, True, [1])
    ),
    (400, "POST", "/devices/search", {"pageNumber": 1}, "pageSize"),
    (400, "POST", "/devices/search", PAGE | {"sorts": [{"property": "key"}]}, "sorts[0].property"),
    (
        400,
        "POST",
        "/devices/search",
        PAGE | {"sorts": [{"property": "sn", "direction": "up"}]},
        "sorts[0].direction",
    ),
    (400, "POST", "/devices/search", PAGE | {"connectStatus": ["AWAY"]}, "connectStatus"),
    (400, "POST", "/devices/search", PAGE | {"connectStatus": "ONLINE"}, "connectStatus"),
    (400, "POST", "/devices/search", PAGE | {"deviceType": ["X"]}, "deviceType"),
    (400, "POST", "/devices/search", PAGE | {"electricityMin": 101}, "electricityMin"),
    (400, "POST", "/devices/search", PAGE | {"name": {"$ne": ""}}, "name"),
    (400, "POST", "/devices/search", PAGE | {"name": "\x00"}, "name"),
    (
        400,
        "POST",
        "/devices/search",
        PAGE | {"electricityMin": 9, "electricityMax": 5},
        "electricityMin",
    ),
    *(
        (400, "GET", f"{HISTORY}?{query}", None, field)
        for field, query in (
            ("pageSize", "pageSize=0"),
            ("pageSize", "pageSize=-5"),
            ("pageSize", "pageSize=x"),
            ("startTime", "startTime=yesterday"),
            ("startTime", "startTime=-1"),
            ("startTime", "startTime=9223372036854775808"),
            ("endTime", "startTime=2000&endTime=1000"),
            ("order", "order=up"),
            ("pageKey", "pageKey=mine"),
            ("pageKey", "pageKey=%00"),
            ("pageKey", "pageKey=" + "A" * 33),
        )
    ),
    (400, "GET", "/products?pageSize=0", None, "pageSize"),
    (400, "GET", "/products?pageNumber=x", None, "pageNumber"),
    # ids that are nobody's, or no ids
    *(
        (404, method, path.format(id=1), body, "deviceId")
        for method, path, body in (
            ("GET", "/devices/{id}", None),
            ("DELETE", "/devices/{id}", None),
            ("PUT", "/devices/remove/{id}", None),
            ("GET", "/devices/{id}/thing-specification", None),
            ("POST", "/devices/{id}/credentials", None),
            ("GET", "/devices/{id}/config", None),
            ("GET", HISTORY, None),
            ("PATCH", PATCH, {"properties": {"led": True}}),
            ("POST", CALL, {"serviceId": "reboot"}),
            ("PUT", "/devices", {"deviceId": 1, "name": "n"}),
            ("POST", "/tasks", TASK | {"deviceIds": [1]}),
        )
    ),
    (400, "GET", f"/devices/{2**53}", None, "deviceId"),
    (400, "GET", f"/devices/{2**63}", None, "deviceId"),
    (400, "GET", "/devices/0", None, "deviceId"),
    (404, "GET", "/tasks/5", None, "task"),
    (404, "DELETE", "/rps/NOBODY", None, "sn"),
    (404, "GET", "/products/nothing", None, "nothing"),
    (404, "DELETE", "/products/nothing", None, "nothing"),
    # values
    *(
        (400, "PATCH", PATCH, {"properties": properties}, name)
        for name, properties in (
            ("properties", {}),
            ("properties.temperature", {"temperature": 20}),
            ("properties.nothing", {"nothing": 1}),
            ("properties.label", {"label": ""}),
            ("properties.label", {"label": "x" * 9}),
            ("properties.label", {"label": 2**70}),
            ("properties.led", {"led": "true"}),
            ("properties.led", {"led": None}),
            ("properties.secret", {"secret": "xyz"}),
            ("properties.rules", {"rules": []}),
            ("properties.rules", {"rules": {"limit": 1}}),
            ("limit", {"rules": [{}]}),
            ("properties.reporting_interval.time", {"reporting_interval": {"time": 1441}}),
            ("properties.reporting_interval.time", {"reporting_interval": {"time": 2**64}}),
            ("properties.reporting_interval.time", {"reporting_interval": {"time": 1.5}}),
            ("properties.reporting_interval", {"reporting_interval": 5}),
            ("$where", {"$where": 1}),
        )
    ),
    (400, "PATCH", PATCH, {"properties": []}, "properties"),
    (400, "PATCH", PATCH, {}, "properties"),
    (400, "POST", CALL, {}, "serviceId"),
    (400, "POST", CALL, {"serviceId": "nothing"}, "nothing"),
    (400, "POST", CALL, {"serviceId": "measure", "inputs": {"times": 10}}, "inputs.times"),
    (400, "POST", CALL, {"serviceId": "measure", "inputs": {"x": 1}}, "inputs.x"),
    (400, "POST", CALL, {"serviceId": "measure", "inputs": []}, "inputs"),
    (400, "POST", "/tasks", TASK | {"type": "OTA"}, "type"),
    (400, "POST", "/tasks", TASK | {"deviceIds": []}, "deviceIds"),
    (400, "POST", "/tasks", TASK | {"deviceIds": "a,b"}, "deviceIds"),
    (400, "POST", "/tasks", TASK | {"deviceIds": ""}, "deviceIds"),
    (400, "POST", "/tasks", TASK | {"deviceIds": [0]}, "deviceIds"),
    (400, "POST", "/tasks", TASK | {"deviceIds": [2**63]}, "deviceIds"),
    (400, "POST", "/tasks", TASK | {"config": None}, "config"),
    (400, "POST", "/tasks", TASK | {"config": {}}, "config.properties"),
    (400, "POST", "/tasks", TASK | {"config": {"properties": {"led": 9}}}, "config.properties.led"),
    (400, "POST", "/tasks", TASK | {"type": "PROFILE", "config": {"values": []}}, "config.values"),
    # RPS and products
    (400, "POST", "/rps/profile", {"sn": "X"}, "profileUrl"),
    (400, "POST", "/rps/profile", RPS | {"sn": "a/b"}, "sn"),
    (400, "POST", "/rps/profile", RPS | {"profileUrl": "nonsense"}, "profileUrl"),
    (400, "POST", "/rps/profile", RPS | {"profileUrl": "ftp://example.com"}, "profileUrl"),
    (400, "POST", "/rps/profile", RPS | {"profileUrl": "http://[::"}, "profileUrl"),
    (400, "POST", "/rps/profile", RPS | {"profileUrl": "http://a\x00b"}, "profileUrl"),
    (400, "PUT", "/products/CT-BAD", {"name": "n"}, "tsl"),
    (400, "PUT", "/products/CT-BAD", PRODUCT | {"tsl": []}, "tsl"),
    (400, "PUT", "/products/CT-BAD", PRODUCT | {"tsl": TSL | {"properties": {}}}, "tsl.properties"),
    (400, "PUT", "/products/CT-BAD", PRODUCT | {"tsl": TSL | {"version": "a b"}}, "tsl.version"),
    (400, "PUT", "/products/CT-BAD", PRODUCT | {"snPrefixes": ["*"]}, "snPrefixes[0]"),
    (400, "PUT", "/products/CT-BAD", PRODUCT | {"deviceType": "CAMERA"}, "deviceType"),
    (400, "PUT", "/products/CT%20BAD", PRODUCT, "model"),
    # paths and methods
    (404, "GET", "/nothing", None, ""),
    (404, "GET", "/device/openapi/v2/devices/1", None, ""),
    (405, "GET", "/devices", None, ""),
    (405, "POST", "/devices/1", {}, ""),
    (405, "PATCH", "/devices/search", {}, ""),
    (405, "DELETE", "/rps/profile/", None, ""),
]


def _with_id(value: Any, identity: int) -> Any:
    if isinstance(value, dict):
        return {name: _with_id(one, identity) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_id(one, identity) for one in value]
    return identity if value == "{id}" else value


def _name(row: Row) -> str:
    body = row[3] if isinstance(row[3], bytes) else str(row[3])
    return f"{row[0]} {row[1]} {row[2]} {body[:40]!r}"


async def test_every_bad_input_is_refused_by_name(
    api: Api, thing: Thing, subtests: pytest.Subtests
) -> None:
    """The table above, row by row."""
    for row in ROWS:
        status, method, path, body, field = row
        with subtests.test(_name(row)):
            answer = await api.ask(
                method, path.replace("{id}", str(thing.id)), _with_id(body, thing.id)
            )
            refused(answer, status, *([field] if field else []))


@pytest.mark.parametrize(
    ("content_type", "body", "status", "name"),
    [
        ("application/x-www-form-urlencoded", b"", 400, "grant_type"),
        ("application/x-www-form-urlencoded", b"grant_type=password", 400, "grant_type"),
        ("application/x-www-form-urlencoded", b"grant_type=client_credentials", 400, "client_id"),
        ("application/x-www-form-urlencoded", b"grant_type=refresh_token", 400, "refresh_token"),
        ("application/x-www-form-urlencoded", b"grant_type=%zz", 400, ""),
        ("application/x-www-form-urlencoded", b"grant_type=%ff", 400, ""),
        ("application/x-www-form-urlencoded", b"grant_type=a&grant_type=b", 400, "grant_type"),
        ("application/x-www-form-urlencoded", b"grant_type=\x00", 400, ""),
        ("application/x-www-form-urlencoded", b"x=" + b"a" * 20_000, 413, ""),
        (
            "application/x-www-form-urlencoded",
            b"grant_type=client_credentials&client_id=a&client_secret=b",
            401,
            "client_id",
        ),
        ("application/json", b"{", 400, ""),
        ("application/json", b"[]", 400, ""),
        ("text/plain", b"grant_type=client_credentials", 415, ""),
        ("multipart/form-data", b"grant_type=client_credentials", 415, ""),
    ],
)
async def test_a_bad_token_request_is_refused(
    api: Api, content_type: str, body: bytes, status: int, name: str
) -> None:
    """Forms that are broken, incomplete, ambiguous or of another kind."""
    answer = await api.http.post(
        "/oauth/token", content=body, headers={"Content-Type": content_type}
    )
    refused(answer, status, name)


async def test_ids_of_another_application_do_not_exist(foreign: Api, thing: Thing) -> None:
    """404 on every operation that takes an id, just as for an id of nobody."""
    for method, path, body in (
        ("GET", "/devices/{id}", None),
        ("DELETE", "/devices/{id}", None),
        ("PUT", "/devices/remove/{id}", None),
        ("GET", "/devices/{id}/thing-specification", None),
        ("POST", "/devices/{id}/credentials", None),
        ("GET", "/devices/{id}/config", None),
        ("GET", HISTORY, None),
        ("PATCH", PATCH, {"properties": {"led": True}}),
        ("POST", CALL, {"serviceId": "reboot"}),
        ("PUT", "/devices", {"deviceId": "{id}", "name": "n"}),
        ("POST", "/tasks", TASK),
    ):
        place = path.replace("{id}", str(thing.id))
        await foreign.fails(404, method, place, _with_id(body, thing.id), code="device_not_found")


async def test_one_of_simultaneous_adds_succeeds(api: Api, foreign: Api) -> None:
    """The other requests get 409, from any application."""
    body = {"snDevEUI": new_sn(), "name": "n"}
    answers = await asyncio.gather(
        *(caller.ask("POST", "/devices", body) for caller in (api, foreign) * 5)
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 9
    for answer in answers:
        if answer.status_code == 409:
            refused(answer, 409, "snDevEUI", code="device_already_exists")


async def test_an_oversized_body_is_413(api: Api) -> None:
    """The result is the same with and without a declared length."""
    body = b'{"name":"' + b"x" * (9 * 1024 * 1024) + b'"}'
    refused(await api.ask("POST", "/devices", body), 413, code="data_too_large")

    async def pieces():
        for at in range(0, len(body), 65_536):
            yield body[at : at + 65_536]

    headers = {"Authorization": f"Bearer {api.token}", "Content-Type": "application/json"}
    path = "/device/openapi/v1/devices"
    refused(await api.http.post(path, content=pieces(), headers=headers), 413)


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "multipart/form-data"])
async def test_another_content_type_is_never_our_fault(api: Api, content_type: str) -> None:
    """Read as JSON all the same, or refused; a captured client sends the wrong type."""
    for body in (b'{"pageSize":1,"pageNumber":1}', b"<xml/>"):
        answer = await api.ask(
            "POST", "/devices/search", body, headers={"Content-Type": content_type}
        )
        assert answer.status_code in {200, 400, 415}, answer.text


async def test_duplicate_keys_are_never_our_fault(api: Api, thing: Thing) -> None:
    """Refused, or the last one counts."""
    body = b'{"properties":{"led":true,"led":7}}'
    answer = await api.ask("PATCH", f"/devices/{thing.id}/properties", body)
    refused(answer, 400, "led")


async def test_405_names_the_methods(api: Api) -> None:
    """`Allow`, as HTTP wants it."""
    answer = await api.ask("GET", "/devices")
    refused(answer, 405, code="method_not_allowed")
    assert {"POST", "PUT"} <= {one.strip() for one in answer.headers["allow"].split(",")}
