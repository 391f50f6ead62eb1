"""What holds for every operation: methods, parameters, pages, slashes, documents."""

import gzip
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contract.client import API, Api, refused
from tests.contract.conftest import Thing
from tests.contract.console import Console, console_refused
from tests.contract.hall import Hall
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("contract")

HISTORY = "/devices/{id}/properties/history"


@pytest.fixture(scope="module")
def web() -> Iterator[httpx.Client]:
    """One client for all requests, without certificates: to load them takes longer."""
    with httpx.Client(verify=False, limits=httpx.Limits(max_keepalive_connections=0)) as client:
        yield client


@pytest.mark.parametrize(
    "path", ["/devices", "/devices/{id}", "/devices/search", HISTORY, "/tasks"]
)
async def test_methods_of_a_path(api: Api, thing: Thing, path: str) -> None:
    """OPTIONS and 405 name the same methods; where GET is there is HEAD, which has no body."""
    path = path.format(id=thing.id)
    options = await api.ask("OPTIONS", path)
    wrong = await api.ask("TRACE", path)
    refused(wrong, 405, code="method_not_allowed")
    allowed = options.headers["allow"].split(", ")
    assert options.status_code == 204
    assert wrong.headers["allow"].split(", ") == allowed == sorted(allowed)
    assert ("HEAD" in allowed) == ("GET" in allowed)
    if "GET" in allowed:
        got, head = await api.ask("GET", path), await api.ask("HEAD", path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(got.content))


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", HISTORY + "?nextPageKey=x", "nextPageKey"),
        ("GET", HISTORY + "?pageSize=1&page_size=1", "page_size"),
        ("GET", "/devices/{id}?verbose", "verbose"),
        ("GET", "/products?PageSize=1", "PageSize"),
        ("GET", "/limits?x=1", "x"),
        ("PUT", "/devices/remove/{id}?force=true", "force"),
    ],
)
async def test_unknown_parameter(api: Api, thing: Thing, method: str, path: str, name: str) -> None:
    """The device open API refuses what it would pass over; nothing is done."""
    body = refused(await api.ask(method, path.format(id=thing.id)), 400, name)
    assert body["errMsg"].count(name) == 1
    assert (await api.ask("GET", f"/devices/{thing.id}")).status_code == 200


def test_unknown_parameter_of_a_device(platform: Platform, thing: Thing, web: httpx.Client) -> None:
    """The same holds for what devices call."""
    url = f"{platform.base_url}/ingest/v1/{thing.sn}"
    body: Any = {"properties": {"temperature": 1}}
    answer = web.post(f"{url}/report?waits=stored", json=body, auth=(thing.sn, thing.key))
    refused(answer, 400, "waits")
    refused(web.get(f"{url}/commands?Wait=1", auth=(thing.sn, thing.key)), 400, "Wait")


async def test_unknown_parameter_of_the_console(admin: Console, hall: Hall) -> None:
    """The management API passes over what it does not know, as existing consoles send some."""
    await admin.done("GET", "/user?_=1700000000")
    await admin.done("POST", "/user/roles/search?x=1", {"unknown": True})


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/devices/abc", "deviceId"),
        ("/devices/0", "deviceId"),
        ("/devices/1.5", "deviceId"),
        ("/devices/-1/config", "deviceId"),
        ("/devices/9007199254740992", "deviceId"),
        ("/devices/x/properties/history", "deviceId"),
        ("/tasks/abc", "taskId"),
        ("/tasks/99999999999999999999", "taskId"),
    ],
)
async def test_an_id_that_is_none(api: Api, path: str, name: str) -> None:
    """It is a 400 that names it, not an unknown path."""
    body = await api.fails(400, "GET", path, names=[name])
    assert body["errMsg"].count(name) == 1


PAGES: list[tuple[str, str, Any, int]] = [
    ("POST", "/devices/search", {"pageNumber": 1}, 1000),
    ("POST", "/rps/search", {"pageNumber": 1}, 1000),
    ("GET", "/products", None, 1000),
    ("GET", HISTORY, None, 1000),
]
"""Where the device open API has pages, and the largest of them."""


async def page(api: Api, method: str, path: str, body: Any, size: Any) -> httpx.Response:
    if method == "GET":
        return await api.ask(method, f"{path}?pageSize={size}")
    return await api.ask(method, path, body | {"pageSize": size})


@pytest.mark.parametrize(("method", "path", "body", "most"), PAGES)
async def test_page_sizes(
    api: Api, thing: Thing, method: str, path: str, body: Any, most: int
) -> None:
    """Above the largest it is the largest, as the answer tells; what is no size is refused."""
    path = path.format(id=thing.id)
    for size in (most + 1, 999_999, 10**12, str(most + 1)):
        answer = await page(api, method, path, body, size)
        assert (answer.status_code, answer.json()["data"]["pageSize"]) == (200, most), size
    for size in (0, -1, "x", 1.5, ""):
        refused(await page(api, method, path, body, size), 400, "pageSize")


CONSOLE_PAGES = [
    ("/user/members/search", 100_000),
    ("/user/roles/search", 100_000),
    ("/application/search", 100_000),
    ("/audit/search", 1000),
    ("/device/search", 100_000),
    ("/entity/search", 10_000),
    ("/integration/search", 100_000),
    ("/workflow/flows/search", 100_000),
]


@pytest.mark.parametrize(("path", "most"), CONSOLE_PAGES)
async def test_page_sizes_of_the_console(admin: Console, path: str, most: int) -> None:
    """The same rule, with the sizes that existing consoles ask for."""
    for size in (most + 1, 999_999, 10**12, "999999"):
        found = await admin.done("POST", path, {"page_size": size, "page_number": 1})
        assert found["page_size"] == most, size
    for size in (0, -1, "x", 1.5):
        answer = await admin.ask("POST", path, {"page_size": size, "page_number": 1})
        console_refused(answer, 400, "parameter_validation_failed", "page_size")


async def test_page_sizes_of_a_query(admin: Console) -> None:
    """Searches of roles come with GET as well."""
    for size in (100_001, 999_999):
        found = await admin.done("GET", f"/user/roles/search?page_size={size}&page_number=1")
        assert found["page_size"] == 100_000
    for size in ("0", "-1", "x"):
        answer = await admin.ask("GET", f"/user/roles/search?page_size={size}")
        console_refused(answer, 400, "parameter_validation_failed", "page_size")


@pytest.mark.parametrize("path", ["/oauth/token", "/oauth2/token", "/user/status", "/user"])
def test_a_trailing_slash_changes_nothing(platform: Platform, web: httpx.Client, path: str) -> None:
    """This holds with valid, invalid and without credentials."""
    plain, slashed = (
        web.request("GET" if "user" in path else "POST", f"{platform.base_url}{one}")
        for one in (path, path + "/")
    )
    assert slashed.status_code == plain.status_code
    assert slashed.status_code != 404


def test_pictures_are_open(platform: Platform, web: httpx.Client) -> None:
    """One that is not there is a 404: at a 401 consoles log out. Those that are travel once."""
    for prefix in ("", "/api/v1"):
        url = f"{platform.base_url}{prefix}/public"
        for name in ("nope.svg", "a/b.svg", ""):
            assert web.get(f"{url}/{name}").status_code == 404, name
        there = web.get(f"{url}/system.svg")
        assert (there.status_code, there.headers["content-type"]) == (200, "image/svg+xml")
        again = web.get(f"{url}/system.svg", headers={"If-None-Match": there.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


async def test_compressed_both_ways(api: Api, thing: Thing) -> None:
    """A whole platform takes a compressed body, and compresses a document."""
    body = gzip.compress(b'{"pageSize": 5, "pageNumber": 1}')
    answer = await api.ask("POST", "/devices/search", body, headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 200
    specification = await api.ask("GET", f"{API}/devices/{thing.id}/thing-specification")
    assert specification.headers.get("content-encoding") == (
        "gzip" if len(specification.content) > 1400 else None
    )
