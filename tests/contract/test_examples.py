"""The examples of request bodies in the document work as they stand."""

from typing import Any

import pytest

from tests.contract.client import Api
from tests.contract.console import Console, new_name

pytestmark = pytest.mark.xdist_group("contract")

JSON = "application/json"
FIRST = ("putProduct", "addDevice")
"""Operations that make what the others are about."""


def examples(document: dict[str, Any]) -> dict[str, tuple[str, str, Any]]:
    """Method, path and body of each example, by operation id, in the order to call them in."""
    found = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            content = operation.get("requestBody", {}).get("content", {}).get(JSON, {})
            if "example" in content:
                found[operation["operationId"]] = (method.upper(), path, content["example"])
    return {name: found[name] for name in sorted(found, key=lambda name: (name not in FIRST, name))}


async def test_examples_work(api: Api, admin: Console) -> None:
    """Each of them is sent once, to the device that the example of adding one has made."""
    document = (await api.http.get("/openapi.json")).json()
    made = await admin.done("POST", "/dashboard", {"name": new_name()})
    mail = await admin.done("GET", "/credentials/default/SMTP")
    dashboard = {"dashboard_id": made["dashboard_id"], "canvas_id": made["main_canvas_id"]}
    ids: dict[str, Any] = {
        "model": "ROOF-1",
        "sn": "ROOF0001",
        **dashboard,
        "credential_id": mail["id"],
    }
    called = []
    for name, (method, path, body) in examples(document).items():
        if path.startswith(("/workflow/hooks", "/integration/hooks")):
            continue  # their tokens are other tests'
        url = path.format(**ids)
        if "deviceIds" in body:
            body["deviceIds"] = [ids["device_id"]]
        if path.startswith("/ingest/"):
            answer = await api.http.request(method, url, json=body, auth=("ROOF0001", ids["key"]))
        else:
            caller = api if path.startswith("/device/openapi") else admin
            answer = await caller.ask(method, url, body)
        assert answer.is_success, (name, answer.text)
        called.append(name)
        if path.endswith("/codec/redecode"):
            await caller.ask("DELETE", url)  # a product has one at a time
        if name == "createAlarmRule":
            ids["rule_id"] = answer.json()["data"]["id"]
        if name == "addDevice":
            ids["device_id"] = answer.json()["data"]["deviceId"]
            ids["key"] = (await api.done("POST", f"/devices/{ids['device_id']}/credentials"))["key"]
    assert {"updateDeviceProperties", "callDeviceService", "reportEvent", "createDevice"} <= set(
        called
    )
