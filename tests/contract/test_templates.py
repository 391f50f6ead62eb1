"""Libraries of device templates, as consoles upload them, and what is made of them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from libs.common.contracts.limits import MAX_LIBRARY_BYTES
from libs.common.things import DIRECT_INTEGRATION
from tests.contract.client import Api, new_sn
from tests.contract.console import Console, console_accepted, console_refused, new_name
from tests.templates import SHARED, library, packed, small

pytestmark = pytest.mark.xdist_group("contract")

SETTING = "/blueprint-library-setting"


def broken(name: str) -> dict[str, str]:
    """The files of a template whose script cannot be read."""
    files = {path: text.replace("a.js", "b.js") for path, text in small(name).items()}
    return files | {"common/b.js": "function Decode( {"}


async def upload(admin: Console, content: bytes) -> str:
    """Upload a file as consoles do; its URL."""
    announced = await admin.done("POST", "/resource/upload-config", {"file_name": "acme.zip"})
    answer = await admin.http.put(announced["upload_url"], content=content)
    assert answer.status_code == 200, answer.text
    return str(announced["resource_url"])


async def take(admin: Console, content: bytes) -> str:
    """Make a ZIP the library of the tenant; its URL."""
    url = await upload(admin, content)
    body = {"source_type": "UPLOAD", "type": "ZIP", "url": url}
    console_accepted(await admin.ask("POST", SETTING, body), data=False)
    return url


@pytest_asyncio.fixture
async def empty(admin: Console) -> AsyncIterator[Console]:
    """Who may everything, of a tenant that has no library before and after."""
    yield admin
    console_accepted(await admin.ask("POST", SETTING, {"source_type": "DEFAULT"}), data=False)


async def made(admin: Console, *models: str) -> dict[str, Any]:
    """What an import of templates gives, by model."""
    answered = await admin.done("POST", "/product-template/import", {"models": models})
    return {one["model"]: one for one in answered}


async def test_a_library_is_imported_and_products_are_created_from_it(
    empty: Console, api: Api
) -> None:
    """An invalid template is listed with its faults. A second import changes nothing."""
    good, odd, torn = (new_sn("t").lower() for _ in range(3))
    content = library(**{good: small(good), odd: {}, torn: broken(torn)})
    assert await empty.done("GET", SETTING) == {
        "current_source_type": "DEFAULT",
        "synced_success": True,
    }
    url = await take(empty, content)
    source = await empty.done("GET", SETTING)
    assert source.pop("update_time") > 0
    assert source == {
        "current_source_type": "UPLOAD",
        "synced_success": True,
        "type": "ZIP",
        "url": url,
        "file_name": "acme.zip",
        "version": "1.2",
    }

    found = await empty.done("POST", "/product-template/search", {"keyword": good.upper()})
    assert found["content"] == [
        {
            "model": good.upper(),
            "name": f"The {good}",
            "vendor": "Acme",
            "imported": False,
            "faults": [],
        }
    ]
    first = await made(empty, good.upper(), odd.upper(), torn.upper(), "NOBODY")
    missing = {"field": f"{odd}/device-template.yaml", "reason": "does not exist"}
    assert first[good.upper()] == {"model": good.upper(), "faults": []}
    assert first[odd.upper()]["faults"] == [missing]
    assert [fault["field"] for fault in first[torn.upper()]["faults"]] == ["scripts.common/b.js"]
    assert first["NOBODY"]["faults"][0]["field"] == "model"
    await api.fails(404, "GET", f"/products/{torn.upper()}", code="product_not_found")

    product = await api.done("GET", f"/products/{good.upper()}")
    assert [one["id"] for one in product["tsl"]["properties"]] == ["temperature"]
    assert (product["name"], product["deviceOfflineTimeout"]) == (f"The {good}", 1440)
    codec = await api.done("GET", f"/products/{good.upper()}/codec")
    assert codec["scripts"] == SHARED
    assert codec["version"] == product["codecVersion"]

    kept = {"name": "Mine", "snPrefixes": [], "deviceOfflineTimeout": 5, "tsl": product["tsl"]}
    await api.done("PUT", f"/products/{good.upper()}", kept)
    assert await made(empty, good.upper()) == {good.upper(): first[good.upper()]}
    again = await api.done("GET", f"/products/{good.upper()}")
    assert (again["name"], again["deviceOfflineTimeout"]) == ("Mine", 5)


async def test_a_device_of_a_template_is_added(empty: Console, api: Api) -> None:
    """Forms offer the models of the library; the product is made with the first device.

    One whose template has a fault is refused with the input of the model.
    """
    model, torn, sn = new_sn("T"), new_sn("T"), new_sn()
    content = library(**{model.lower(): small(model.lower()), torn.lower(): broken(torn.lower())})
    await take(empty, content)
    form = await empty.done("GET", f"/integration/{DIRECT_INTEGRATION}")
    service = form["add_device_service_key"]
    entities = {entity["key"]: entity for entity in form["integration_entities"]}
    choices = entities[f"{service}.model"]["value_attribute"]["enum"]
    assert choices[model] == f"The {model.lower()} ({model})"

    params = {f"{service}.sn": sn, f"{service}.model": torn}
    body = {"name": new_name(), "integration": DIRECT_INTEGRATION, "param_entities": params}
    refused = await empty.ask("POST", "/device", body)
    console_refused(refused, 400, "multiple_error", f"param_entities.{service}.model")
    assert "SyntaxError" in refused.json()["error_message"]
    params[f"{service}.model"] = model
    console_accepted(await empty.ask("POST", "/device", body), data=False)
    assert (await api.done("GET", f"/products/{model}"))["codecVersion"]


async def test_an_invalid_library_is_rejected(empty: Console, other_admin: Console) -> None:
    """The error has the field and a code that consoles know; the previous library remains."""
    kept = await take(empty, library(a1=small("a1")))
    manifest = {"manifest.yaml": "device_vendor_index: gone.yaml"}
    cases = {
        "blueprint_library_address_manifest_invalid": await upload(empty, packed(manifest)),
        "blueprint_library_resource_device_template_not_found": await upload(
            empty, packed({"a.js": ""})
        ),
        "blueprint_library_resources_fetch_failed": await upload(empty, b"PK\x03\x04"),
    }
    for code, url in cases.items():
        body = {"source_type": "UPLOAD", "type": "ZIP", "url": url}
        console_refused(await empty.ask("POST", SETTING, body), 400, code, "url")
    elsewhere = {"source_type": "UPLOAD", "type": "ZIP", "url": "http://169.254.169.254/x.zip"}
    code = "blueprint_library_resources_fetch_failed"
    console_refused(await empty.ask("POST", SETTING, elsewhere), 400, code, "url")
    console_refused(
        await empty.ask("POST", SETTING, elsewhere | {"type": "GITHUB"}), 400, code, "type"
    )
    console_refused(await other_admin.ask("POST", SETTING, elsewhere | {"url": kept}), 400, code)
    assert (await empty.done("GET", SETTING))["url"] == kept


async def test_a_zip_is_bounded_and_never_shown(empty: Console) -> None:
    """It is offered as a file; what is no ZIP is a 415, one that is too large a 413."""
    announced = await empty.done("POST", "/resource/upload-config", {"file_name": "acme.zip"})
    answer = await empty.http.put(announced["upload_url"], content=b"id: am102")
    console_refused(answer, 415, "blueprint_library_resources_fetch_failed")
    announced = await empty.done("POST", "/resource/upload-config", {"file_name": "acme.zip"})
    large = b"PK\x03\x04" + bytes(MAX_LIBRARY_BYTES)
    answer = await empty.http.put(announced["upload_url"], content=large)
    assert (answer.status_code, answer.json()["error_code"]) == (413, "data_too_large")
    answer = await empty.http.get(await upload(empty, b"PK\x03\x04"))
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"].startswith("attachment")
