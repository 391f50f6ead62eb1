"""Codecs of products, in both APIs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.client import PRODUCT, Api, new_sn
from tests.contract.console import Console, console_refused

pytestmark = pytest.mark.xdist_group("contract")

TS013 = (
    "function decodeUplink({bytes}) {"
    " if (!bytes.length) return {errors: ['empty']};"
    " return {data: {temperature: bytes[0] / 10, unheard_of: 1}, warnings: ['low']} } "
    "function encodeDownlink({data}) { return {bytes: [data.reporting_interval.time], fPort: 6} }"
)
LOOP = "function Decode() { for (;;) {} }"
STEP = {"script": "a.js", "entry": "go", "args": [{"id": "bytes", "payload": True}]}


@pytest_asyncio.fixture
async def path(api: Api) -> AsyncIterator[str]:
    """The codec of a product that is there for one test."""
    model = new_sn("C-")
    await api.done("PUT", f"/products/{model}", PRODUCT | {"snPrefixes": []})
    yield f"/products/{model}/codec"
    await api.ask("DELETE", f"/products/{model}")


async def test_a_codec_is_put_read_and_deleted(api: Api, path: str) -> None:
    """Its functions are found; its version is that of its content; it goes with its product."""
    product = path.removesuffix("/codec")
    await api.fails(404, "GET", path, code="codec_not_found")
    example = {"port": 1, "base64": "1w==", "expected": {"temperature": 21.5, "unheard_of": 1}}
    made = await api.done("PUT", path, {"script": TS013, "examples": [example]})
    assert [made["decoder"][0]["entry"], made["encoder"][0]["entry"]] == [
        "decodeUplink",
        "encodeDownlink",
    ]
    assert await api.done("GET", path) == made
    assert (await api.done("GET", product))["codecVersion"] == made["version"]
    assert (await api.done("PUT", path, {"script": TS013}))["version"] == made["version"]
    assert (await api.done("PUT", path, {"script": f"{TS013} "}))["version"] != made["version"]
    await api.done("DELETE", path)
    assert "codecVersion" not in await api.done("GET", product)
    await api.fails(404, "DELETE", path, code="codec_not_found")
    await api.done("PUT", path, {"script": TS013})
    body = PRODUCT | {"snPrefixes": []}
    await api.done("DELETE", product)
    await api.done("PUT", product, body)
    await api.fails(404, "GET", path, code="codec_not_found")


async def test_a_codec_test_decodes_bytes_and_encodes_values(api: Api, path: str) -> None:
    """Decoded values come with their TSL properties, encoded bytes with their port."""
    await api.done("PUT", path, {"script": TS013})
    tried = await api.done("POST", f"{path}/test", {"port": 1, "hex": "D7"})
    assert tried["properties"] == {"temperature": 21.5, "unheard_of": 1}
    assert tried["accepted"] == {"temperature": 21.5}
    assert [one["field"] for one in tried["refused"]] == ["properties.unheard_of"]
    assert tried["warnings"] == ["low"]
    failed = await api.done("POST", f"{path}/test", {"port": 1, "hex": ""})
    assert failed == {"fault": "empty"}
    noisy = {"script": "function Decode() { console.log('a', 1); throw new Error('odd') }"}
    logged = await api.done("POST", f"{path}/test", {"port": 1, "hex": "", "codec": noisy})
    assert logged == {"fault": "Error: odd", "log": ["a 1"]}
    wanted = {"port": 1, "values": {"reporting_interval": {"time": 9}}}
    sent = await api.done("POST", f"{path}/test", wanted)
    assert (sent["hex"], sent["base64"], sent["port"]) == ("09", "CQ==", 6)
    assert "refused" not in sent


async def test_a_bad_value_of_a_codec_costs_no_other(api: Api, path: str) -> None:
    """Keys with dots nest at every level; numbers may be text; what is lost is said."""
    values = "temperature: '21.5', reporting_interval: {'time.x': 1, time: '9', unit: NaN}, a: 1n"
    script = f"function decodeUplink() {{ return {{data: {{{values}}}}} }}"
    tried = await api.done(
        "POST", f"{path}/test", {"port": 1, "hex": "00", "codec": {"script": script}}
    )
    assert tried["accepted"] == {"temperature": 21.5, "reporting_interval": {"time": 9}}
    assert [one["field"] for one in tried["refused"]] == [
        "properties.reporting_interval.time.x",
        "properties.reporting_interval.unit",
        "properties.a",
    ]
    flat = {"temperature": 21.5, "reporting_interval.time": 9, "reporting_interval.unit": None}
    example = {"port": 1, "hex": "00", "expected": flat | {"a": 1}}
    await api.done("PUT", path, {"script": script, "examples": [example]})


async def test_a_codec_is_tried_before_it_is_kept(api: Api, path: str) -> None:
    """One that loops is ended; nothing is stored."""
    tried = await api.done(
        "POST", f"{path}/test", {"port": 1, "hex": "00", "codec": {"script": LOOP}}
    )
    assert tried == {"fault": "takes too long"}
    await api.fails(404, "GET", path, code="codec_not_found")


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({}, ["script"]),
        ({"script": "a", "scripts": {"a.js": "a"}}, ["script"]),
        ({"script": "function ("}, ["script", "SyntaxError"]),
        ({"script": "}); (function () {"}, ["script", "SyntaxError"]),
        ({"script": "var decodeUplink = 7"}, ["script", "decodeUplink"]),
        ({"script": "a\0"}, ["script", "NUL"]),
        ({"scripts": {"a.js": "(", "b.js": ")"}}, ["scripts.a.js", "scripts.b.js"]),
        (
            {"scripts": {"a.js": "var a"}, "decoder": [STEP, STEP | {"script": "b.js"}]},
            ["decoder[0].entry", "decoder[1].script"],
        ),
        ({"scripts": {"a.js": "function go() {}"}, "encoder": [STEP]}, ["decoder"]),
        (
            {"script": TS013, "examples": [{"port": 1, "hex": ""}, {"port": 1, "hex": "00"}]},
            ["examples[0]", "empty"],
        ),
        (
            {"script": TS013, "examples": [{"port": 1, "hex": "0A", "expected": {}}]},
            ["examples[0].expected", '"temperature":1'],
        ),
        ({"script": TS013, "examples": [{"port": 1}]}, ["examples[0].hex"]),
        ({"script": TS013, "examples": [{"port": 1, "base64": "?"}]}, ["examples[0].base64"]),
        ({"script": TS013, "examples": [{"port": 1, "base64": "é"}]}, ["examples[0].base64"]),
        ({"script": TS013, "examples": [{"port": 0, "hex": "00"}]}, ["examples[0].port"]),
        ({"script": TS013, "more": 1}, ["more"]),
    ],
)
async def test_every_fault_of_a_codec_is_named(
    api: Api, path: str, body: dict[str, Any], names: list[str]
) -> None:
    """Scripts, functions, examples; nothing is stored."""
    await api.fails(400, "PUT", path, body, names=names)
    await api.fails(404, "GET", path, code="codec_not_found")


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"port": 1}, "hex"),
        ({"port": 1, "hex": "0"}, "hex"),
        ({"port": 224, "hex": "00"}, "port"),
        ({"port": 1, "values": {"n": 10**30}}, "values"),
        ({"port": 1, "hex": "00", "values": {}}, "values"),
        ({"port": 1, "values": {}, "codec": {"script": LOOP}}, "values"),
    ],
)
async def test_a_wrong_trial_is_refused(api: Api, path: str, body: Any, name: str) -> None:
    """By the name of its field."""
    await api.done("PUT", path, {"script": TS013})
    await api.fails(400, "POST", f"{path}/test", body, names=[name])


async def test_only_changeable_products_have_codecs(api: Api) -> None:
    """The built-in product and an unknown product have none."""
    body = {"script": TS013}
    await api.fails(409, "PUT", "/products/generic/codec", body, code="product_built_in")
    await api.fails(404, "PUT", "/products/NOBODY/codec", body, code="product_not_found")


async def test_a_codec_on_the_console(
    api: Api, admin: Console, other_admin: Console, path: str
) -> None:
    """The same as for applications; other tenants find no product."""
    page = path.replace("/products", "/product")
    made = await admin.done("PUT", page, {"script": TS013})
    assert await api.done("GET", path) == made == await admin.done("GET", page)
    tried = await admin.done("POST", f"{page}/test", {"port": 1, "hex": "0A"})
    assert tried["accepted"] == {"temperature": 1}
    console_refused(await other_admin.ask("GET", page), 404, "product_not_found")
    wrong = await admin.ask("PUT", page, {"script": "("})
    console_refused(wrong, 400, "parameter_validation_failed", "script")
    await admin.ask("DELETE", page)
    console_refused(await admin.ask("GET", page), 404, "codec_not_found")
