"""Management API: what no console sends is answered all the same, and never with a 5xx."""

import pytest

from libs.common.things import DIRECT_INTEGRATION
from tests.contract.console import Console
from tests.contract.hall import ADD_DEVICE, Hall, add_custom

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.usefixtures("api")]

TEXTS = [
    "\0", "a\0b", "\ud800", "\u202e", "💡" * 100, ".*", "(", "[a-", "\\", "$where", "{'$gt':''}",
    "x" * 300, "'\"", "%00", "é",
]  # fmt: skip
KEYS = [
    "", ".", "..", "...", "a", "a.b", "a.b.c.d.e", "system.integration.", "system.integration..",
    ".integration.x", f"{DIRECT_INTEGRATION}.device..led", f"{DIRECT_INTEGRATION}.device.S.",
    f"{DIRECT_INTEGRATION}.integration.",
    "$.$.$.$", "a.device.\0.x", "k" * 5000, "system.integration." + "x" * 5000,
]  # fmt: skip
VALUES = [
    b"1e400", b"-1e400", b"1" * 400, b"[" * 900 + b"]" * 900, b'{"a":' * 400 + b"1" + b"}" * 400,
    b'"\\u0000"', b'"\\ud800"', b'"' + b"9" * 5000 + b'"', b"{}", b"[]", b"null", b"true",
    b'{"$gt":1}', b'{"":{"":0}}', b"0.1e-400", b"-0", b"9007199254740993", b"18446744073709551616",
]  # fmt: skip


def escaped(text: str) -> bytes:
    """JSON of a text, with surrogates as escapes."""
    return b'"' + b"".join(f"\\u{unit:04x}".encode() for unit in _units(text)) + b'"'


def _units(text: str) -> list[int]:
    raw = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(raw[at : at + 2]) for at in range(0, len(raw), 2)]


async def check(console: Console, method: str, path: str, body: bytes) -> None:
    """The answer is ours, and no failure of ours."""
    answer = await console.ask(method, path, body)
    assert answer.status_code < 500, (method, path, body[:200], answer.text)
    assert answer.json()["status"] == ("Success" if answer.status_code == 200 else "Failed")


@pytest.mark.parametrize("text", TEXTS)
async def test_texts(hall: Hall, text: str) -> None:
    """Wherever a text is read."""
    said, led = escaped(text), hall.entities["led"]
    for method, path, body in (
        ("POST", "/device/search", b'{"name":%s}'),
        ("POST", "/device/search", b'{"identifier":%s}'),
        ("POST", "/device/search", b'{"sorts":[{"property":%s}]}'),
        ("POST", "/entity/search", b'{"keyword":%s,"page_size":5}'),
        ("POST", "/entity/search", b'{"sorts":[{"property":"key","direction":%s}]}'),
        ("POST", "/device", b'{"name":%s,"integration":"nothing","param_entities":{}}'),
        ("POST", "/device", b'{"name":"N","integration":%s,"param_entities":{}}'),
        ("POST", "/device", b'{"name":"N","integration":"direct","param_entities":{%s:1}}'),
        ("PUT", f"/entity/{led}", b'{"name":%s}'),
        ("POST", "/entity/history/aggregate", b'{"entity_id":"1","aggregate_type":%s}'),
        ("POST", "/entity/history/search", b'{"entity_id":%s}'),
        ("POST", "/entity/property/update", b'{"exchange":{%s:1}}'),
        ("POST", "/entity/service/call", b'{"exchange":{%s:1}}'),
        ("POST", "/entity", b'{"identifier":%s,"name":"N","type":"EVENT","value_type":"LONG"}'),
        ("POST", "/dashboard", b'{"name":%s}'),
        ("POST", "/integration/search", b'{"sorts":[{"property":%s}]}'),
    ):
        await check(hall.admin, method, path, body % said)


@pytest.mark.parametrize("path", ["/entity/property/update", "/entity/service/call"])
async def test_keys(hall: Hall, path: str) -> None:
    """Keys that can be none are unknown ones."""
    for key in KEYS:
        await check(hall.admin, "POST", path, b'{"exchange":{%s:1}}' % escaped(key))


@pytest.mark.parametrize("kind", ["LONG", "DOUBLE", "STRING", "BOOLEAN", "BINARY", "OBJECT"])
async def test_values(admin: Console, kind: str) -> None:
    """Whatever is written to an entity can be read again, or was refused."""
    made = await add_custom(admin, value_type=kind)
    for value in VALUES:
        body = b'{"exchange":{"%s":%s}}' % (made["key"].encode(), value)
        await check(admin, "POST", "/entity/property/update", body)
        answer = await admin.ask("GET", f"/entity/{made['id']}/status")
        assert answer.status_code == 200, (value[:100], answer.text)
    for kind_of in ("LAST", "MIN", "MAX", "COUNT", "SUM", "AVG"):
        wanted = {"entity_id": made["id"], "aggregate_type": kind_of}
        answer = await admin.ask("POST", "/entity/history/aggregate", wanted)
        assert answer.status_code in {200, 400}, answer.text
    answer = await admin.ask("GET", f"/entity/export?ids={made['id']}")
    assert answer.status_code == 200, answer.text


async def test_values_for_a_device(hall: Hall) -> None:
    """The same for what a device is asked, and for the parameters of an addition."""
    for value in VALUES:
        for path in ("label", "led", "rules", "reporting_interval", "reporting_interval.time"):
            body = b'{"exchange":{"%s":%s}}' % (hall.key(path).encode(), value)
            await check(hall.admin, "POST", "/entity/property/update", body)
        for name in ("sn", "model"):
            body = (
                b'{"name":"N","integration":"direct","param_entities":{"%s.model":7,"%s.%s":%s}}'
            ) % (ADD_DEVICE.encode(), ADD_DEVICE.encode(), name.encode(), value)
            await check(hall.admin, "POST", "/device", body)


async def test_attributes_and_widgets(admin: Console) -> None:
    """Opaque objects are kept, or refused as too large or too deep."""
    made = await admin.done("POST", "/dashboard", {"name": "Odd input"})
    for value in VALUES:
        body = b'{"name":"Odd input","widgets":[{"data":{"x":%s}}]}' % value
        await check(admin, "PUT", f"/dashboard/{made['dashboard_id']}", body)
        answer = await admin.ask("GET", "/dashboard/dashboards")
        assert answer.status_code == 200, (value[:100], answer.text)
        for name in ("min", "max_length", "enum", "unit", "optional", "fraction_digits", "x"):
            body = (
                b'{"identifier":"odd","name":"N","type":"PROPERTY","access_mod":"RW",'
                b'"value_type":"STRING","value_attribute":{"%s":%s}}'
            ) % (name.encode(), value)
            await check(admin, "POST", "/entity", body)
    await admin.does("DELETE", f"/dashboard/{made['dashboard_id']}")


SEARCHES = ("/device/search", "/entity/search", "/integration/search", "/user/members/search")


@pytest.mark.parametrize("body", [b"[]", b"7", b'"x"', b"null", b"{", b"\xff", b"", b"[" * 5000])
async def test_bodies_that_are_no_objects(hall: Hall, body: bytes) -> None:
    """400, wherever a body is read; only a search for everything may have none."""
    led = hall.entities["led"]
    searches = () if body in {b"", b"null"} else SEARCHES
    for method, path in (
        *(("POST", path) for path in (
            *searches, "/device", "/device/batch-delete", "/entity", "/entity/delete",
            "/entity/history/search", "/entity/history/aggregate", "/entity/property/update",
            "/entity/service/call", "/dashboard",
        )),
        ("PUT", f"/device/{hall.device}"), ("PUT", f"/entity/{led}"), ("PUT", "/dashboard/1"),
    ):  # fmt: skip
        answer = await hall.admin.ask(method, path, body)
        assert answer.status_code == 400, (path, answer.text)
        assert answer.json()["error_code"].startswith("parameter_")


@pytest.mark.parametrize("path", [*SEARCHES, "/user/roles/search"])
async def test_a_search_for_everything_needs_no_body(admin: Console, path: str) -> None:
    """Every field of it is optional."""
    assert await admin.done("POST", path) == await admin.done("POST", path, {})


@pytest.mark.parametrize("odd", ["abc", "1.5", "0x10", "%20", "9" * 30])
async def test_an_id_in_the_path_that_is_none(admin: Console, odd: str) -> None:
    """Broken syntax, with the name of what is broken."""
    for method, path, body, field in (
        ("GET", f"/device/{odd}", None, "device_id"),
        ("PUT", f"/device/{odd}", {"name": "N"}, "device_id"),
        ("GET", f"/entity/{odd}/status", None, "entity_id"),
        ("DELETE", f"/dashboard/{odd}", {}, "dashboard_id"),
        ("DELETE", f"/user/members/{odd}", {}, "user_id"),
        ("POST", f"/user/roles/{odd}/members", {}, "role_id"),
        ("DELETE", f"/user/menus/{odd}", {}, "menu_id"),
        ("GET", f"/workflow/flows/{odd}/design", None, "flow_id"),
    ):
        await admin.fails(400, "parameter_syntax_error", method, path, body, field)
