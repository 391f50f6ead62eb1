"""The document of the whole API, as the gateway gives it: valid, complete, true to the guards."""

import json
from typing import Any

import httpx
import pytest
import schemathesis

from libs.common.http.guards import GuardedOperation
from libs.common.identity import PrincipalKind
from tests.contract.cast import list_requests, name_of
from tests.contract.test_matrix import OPEN
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("contract")

Json = dict[str, Any]
UNDOCUMENTED = {
    "GET /public/{name}",
    "PUT /resource/uploads/{ticket}",
    "GET /resource/files/{key}",
    *(one for one in OPEN if "/workflow-http-in/" in one),
}
"""What the document leaves out: pictures, whose URLs are told whole, and the addresses that people
give flows."""


@pytest.fixture(scope="module")
def document(platform: Platform) -> Json:
    """The merged document."""
    return dict(httpx.get(f"{platform.base_url}/openapi.json").raise_for_status().json())


def due(operation: GuardedOperation) -> list[dict[str, list[str]]]:
    """The security of an operation as its guard has it."""
    guard = operation.guard
    if guard is None:
        return []
    if guard.super_admin:
        return [{"user": ["super_admin"]}]
    if guard.functions:
        return [{"user": [function]} for function in sorted(guard.functions)]
    return {
        PrincipalKind.APPLICATION: [{"bearer": []}, {"accessToken": []}],
        PrincipalKind.DEVICE: [{"deviceKey": []}],
        PrincipalKind.USER: [{"user": []}],
    }[guard.kind]


def test_document_is_valid(document: Json) -> None:
    """It is OpenAPI 3.1, every reference leads somewhere, and no name stands twice.

    URLs may be relative (OpenAPI 3.1.0, 4.6), which its first JSON schema does not know.
    """
    assert document["openapi"] == "3.1.0"
    absolute = json.dumps(document).replace('Url": "/', 'Url": "https://localhost/')
    schemathesis.openapi.from_dict(json.loads(absolute)).validate()
    operations = [entry for item in document["paths"].values() for entry in item.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(ids) == len(set(ids))
    for reference in references(document):
        node: Any = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part.replace("~1", "/").replace("~0", "~")]


def references(node: Any) -> list[str]:
    """Every `$ref` in a document."""
    if isinstance(node, list):
        return [found for value in node for found in references(value)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return own + [found for value in node.values() for found in references(value)]


def test_operation_is_documented(document: Json, subtests: pytest.Subtests) -> None:
    """Every operation is there, with a tag, its parameters, and who may call as its guard says."""
    for operation in list_requests():
        with subtests.test(name_of(operation)):
            _check_documented(document, operation)


def _check_documented(document: Json, operation: GuardedOperation) -> None:
    if name_of(operation) in UNDOCUMENTED:
        assert operation.method.lower() not in document["paths"].get(operation.path, {})
        return
    entry = document["paths"][operation.path][operation.method.lower()]
    assert entry["tags"]
    assert entry["security"] == due(operation)
    given = {one["name"] for one in entry.get("parameters", []) if one["in"] == "path"}
    assert given == {part[1:-1] for part in operation.path.split("/") if part.startswith("{")}
    assert ("401" in entry["responses"]) or name_of(operation) in OPEN
    assert {"429", "503"} <= set(entry["responses"])


def test_people_sign_in_by_the_document(document: Json) -> None:
    """The scheme of users names the token endpoint, and every scope that an operation asks for."""
    flow = document["components"]["securitySchemes"]["user"]["flows"]["password"]
    assert flow["tokenUrl"] in document["paths"]
    asked = {
        scope
        for item in document["paths"].values()
        for entry in item.values()
        for requirement in entry["security"]
        for scope in requirement.get("user", [])
    }
    assert asked <= set(flow["scopes"])
