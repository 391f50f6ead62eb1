"""No operation of either API gives a value of access mode W to anybody but its device."""

import re
from typing import Any

import httpx
import pytest

from libs.common.http.guards import GuardedOperation
from tests.contract.cast import BODIES, Cast, list_requests, name_of
from tests.contract.test_every_operation import Sweep
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("contract")

SET, REPORTED = "77aa5e7c0de1", "77aa5e7c0de2"
"""Set by people and applications, and reported by the device, which must not do that."""
ENDED = {"status": "FAILED", "error": f"the lock refused {SET}"}
OPEN_API = "/device/openapi/v1"
DELIVERY = "GET /ingest/v1/{sn}/commands"
READS = re.compile("search|aggregate|status|export|describe|check|count|test$|statistic|list")


def _is_read(operation: GuardedOperation) -> bool:
    return operation.method == "GET" or (
        operation.method == "POST" and READS.search(operation.path) is not None
    )


def _fields(document: dict[str, Any], operation: GuardedOperation) -> set[str]:
    """Return the names in the body of an operation."""
    found = document["paths"].get(operation.path, {}).get(operation.method.lower(), {})
    schema = str(found.get("requestBody", ""))
    names: set[str] = set()
    for reference in re.findall(r"#/components/schemas/([\w.-]+)", schema):
        names |= document["components"]["schemas"][reference].get("properties", {}).keys()
    return names


@pytest.fixture
async def sweep(platform: Platform, cast: Cast) -> Sweep:
    document = (await cast.api.http.get("/openapi.json")).raise_for_status().json()
    return Sweep(platform, cast, document)


async def _set_everywhere(cast: Cast) -> list[str]:
    """Set the value in each way that there is; return the answers."""
    device = cast.targets["device_id"]
    key = f"direct.device.{cast.device[0]}.secret"
    properties = {"properties": {"secret": SET, "led": True}}
    answers = [
        await cast.api.http.request(
            method, path, json=body, headers={"Authorization": f"Bearer {token}"}
        )
        for method, path, body, token in (
            (
                "PATCH",
                f"/device/openapi/v1/devices/{device}/properties",
                properties,
                cast.api.token,
            ),
            (
                "POST",
                f"{OPEN_API}/tasks",
                {"type": "TSL", "deviceIds": [int(device)], "config": properties},
                cast.api.token,
            ),
            ("POST", f"/device/{device}/properties", properties, cast.admin.token),
            (
                "POST",
                "/device-batch/configure",
                {"device_id_list": [device], **properties},
                cast.admin.token,
            ),
            ("POST", "/entity/property/update", {"exchange": {key: SET}}, cast.admin.token),
        )
    ]
    assert {answer.status_code for answer in answers} == {200}, [answer.text for answer in answers]
    return [answer.text for answer in answers]


async def _deliver(sweep: Sweep) -> list[int]:
    """Let the device fetch its commands, refuse one, obey the others, and report its settings."""
    cast = sweep.cast
    path, login = f"/ingest/v1/{cast.device[0]}", {"auth": cast.device}
    commands = (await sweep.send("GET", f"{path}/commands", **login)).json()["data"]["commands"]
    holding = [one for one in commands if one.get("properties", {}).get("secret") == SET]
    assert len(holding) == 5
    for number, command in enumerate(commands):
        reply = {"commandId": command["commandId"], "status": "SUCCESS"}
        body = reply | (ENDED if number == 0 else {})
        await sweep.send("POST", f"{path}/reply", params={"wait": "stored"}, json=body, **login)
    for properties in ({"secret": REPORTED, "battery": 50}, {"secret": REPORTED}):
        body = {"properties": properties}
        await sweep.send("POST", f"{path}/report", params={"wait": "stored"}, json=body, **login)
    return [one["commandId"] for one in holding]


async def _ask_all(sweep: Sweep, task: int = 1) -> list[tuple[str, httpx.Response]]:
    """Ask each operation that reads about the device, its write-only entity and a task."""
    cast, device = sweep.cast, sweep.cast.targets["device_id"]
    detail = await cast.admin.done("GET", f"/device/{device}")
    (entity,) = [one["id"] for one in detail["entities"] if one["key"].endswith(".secret")]
    about = {"entity_id": entity, "entity_ids": [entity], "ids": [entity], "device_id": device}
    rest = {"aggregate_type": "LAST", "page_size": 50, "page_number": 1, "start_timestamp": 0}
    found: list[tuple[str, httpx.Response]] = []
    for operation in filter(_is_read, list_requests()):
        if name_of(operation) == DELIVERY:
            continue
        names = _fields(sweep.document, operation)
        body = {name: one for name, one in (about | rest).items() if name in names}
        body |= BODIES.get(name_of(operation), {}) if not body else {}
        path = sweep.path(operation.path, entity_id=entity, task_id=str(task))
        sent = {"json": body} if operation.method == "POST" else {"params": {"ids": entity}}
        login = sweep.credentials(operation)
        answer = await sweep.send(operation.method, path, **sent, **login)
        found.append((name_of(operation), answer))
    return found


def _leaks(answers: list[tuple[str, httpx.Response]]) -> list[str]:
    return [name for name, one in answers if SET in one.text or REPORTED in one.text]


async def test_no_response_has_a_write_only_value(sweep: Sweep) -> None:
    """This holds while its commands are open and after the device has answered them."""
    texts = await _set_everywhere(sweep.cast)
    assert not any(SET in one for one in texts)

    assert _leaks(await _ask_all(sweep)) == []
    tasks = await _deliver(sweep)

    answers = await _ask_all(sweep, tasks[0])
    assert _leaks(answers) == []
    assert sum(one.status_code == 200 for _, one in answers) > 60
    for task in tasks[:2]:  # those that the application began
        shown = await sweep.cast.api.done("GET", f"/tasks/{task}")
        assert {"key": "secret", "status": shown["status"]} in shown["subcommand"]
