"""One OpenAPI document of several."""

from typing import Any

import pytest

from libs.common.http.document import CALLER_EXTENSION
from services.gateway.docs.document import ApiPart, extract_api, merge_documents
from services.gateway.routes import ROUTES, CredentialType, Route

EXTRA = Route(name="x", prefix=b"/x/", upstream="x", credential=CredentialType.TOKEN)


def document(path: str, **schemas: Any) -> dict[str, Any]:
    operation = {
        "operationId": "Get",
        "responses": {
            "200": {
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}}
            }
        },
    }
    return {"paths": {path: {"get": operation}}, "components": {"schemas": schemas}}


def answer_of(merged: dict[str, Any], path: str) -> dict[str, Any]:
    operation = merged["paths"][path]["get"]
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    return merged["components"]["schemas"][schema["$ref"].rpartition("/")[2]]


def test_clashing_components_are_kept_apart() -> None:
    """A name that two services use for different things means each its own afterwards."""
    device = document("/device/openapi/v1/a", Answer={"type": "object"})
    other = document("/x/a", Answer={"type": "string"})
    merged = merge_documents({"device": device, "x": other}, (*ROUTES, EXTRA))
    assert answer_of(merged, "/device/openapi/v1/a") == {"type": "object"}
    assert answer_of(merged, "/x/a") == {"type": "string"}


def test_components_that_refer_to_clashing_ones_are_kept_apart() -> None:
    """Two equal definitions are different when what they refer to is."""
    shared = {"items": {"$ref": "#/components/schemas/Item"}}
    device = document("/device/openapi/v1/a", Answer=shared, Item={"type": "object"})
    other = document("/x/a", Answer=shared, Item={"type": "string"})
    merged = merge_documents({"device": device, "x": other}, (*ROUTES, EXTRA))
    first, second = answer_of(merged, "/device/openapi/v1/a"), answer_of(merged, "/x/a")
    schemas = merged["components"]["schemas"]
    items = [schemas[one["items"]["$ref"].rpartition("/")[2]]["type"] for one in (first, second)]
    assert items == ["object", "string"]


def test_equal_components_stay_one() -> None:
    """A definition that services share is not doubled."""
    device = document("/device/openapi/v1/a", Answer={"type": "object"})
    other = document("/x/a", Answer={"type": "object"})
    merged = merge_documents({"device": device, "x": other}, (*ROUTES, EXTRA))
    assert set(merged["components"]["schemas"]) == {
        "Answer",
        "GatewayError",
        "GatewayConsoleError",
    }


def test_tags_tell_api_and_resource() -> None:
    """Both APIs have devices; who makes clients of the document keeps them apart."""
    device, console = document("/device/openapi/v1/a", Answer={}), document("/device", Answer={})
    for given in (device, console):
        next(iter(given["paths"].values()))["get"]["tags"] = ["Devices"]
    device["paths"] |= console["paths"]
    merged = merge_documents({"device": device}, ROUTES)
    assert merged["tags"] == [{"name": "Device API: Devices"}, {"name": "Management API: Devices"}]
    assert merged["paths"]["/device"]["get"]["tags"] == ["Management API: Devices"]


def test_an_api_alone() -> None:
    """It has the operations of one API, what they refer to, and nothing else."""
    shared = {"properties": {"item": {"$ref": "#/components/schemas/Item"}}}
    device = document("/device/openapi/v1/a", Answer=shared, Item={"type": "string"})
    other = document("/user", Answer=shared, Item={"type": "string"}, Unused={"type": "object"})
    merged = merge_documents({"device": device, "auth": other}, ROUTES)
    found = extract_api(merged, ApiPart.MANAGEMENT)
    assert list(found["paths"]) == ["/user"]
    assert set(found["components"]["schemas"]) == {"Answer", "Item", "GatewayConsoleError"}
    assert [tag["name"] for tag in found["tags"]] == ["Management API: Auth"]
    assert all(name.startswith("GatewayConsole") for name in found["components"]["responses"])


def test_every_reference_leads_somewhere() -> None:
    """The responses that the gateway adds are among the components."""
    merged = merge_documents({"device": document("/device/openapi/v1/a", Answer={})}, ROUTES)
    responses = merged["paths"]["/device/openapi/v1/a"]["get"]["responses"]
    names = [entry["$ref"].rpartition("/")[2] for entry in responses.values() if "$ref" in entry]
    assert names
    assert set(names) <= set(merged["components"]["responses"])


@pytest.mark.parametrize(
    ("path", "service", "caller", "security"),
    [
        ("/device/openapi/v1/a", "device", None, [{"bearer": []}, {"accessToken": []}]),
        ("/ingest/v1/{sn}/a", "device", {"kind": "device"}, [{"deviceKey": []}]),
        ("/user", "auth", {"kind": "user"}, [{"user": []}]),
        ("/user/roles", "auth", {"kind": "user", "superAdmin": True}, [{"user": ["super_admin"]}]),
        (
            "/device/{device_id}",
            "device",
            {"kind": "user", "functions": ["device.edit", "device.view"]},
            [{"user": ["device.edit"]}, {"user": ["device.view"]}],
        ),
        ("/user/status", "auth", None, []),
    ],
)
def test_the_security_of_an_operation_names_its_callers(
    path: str, service: str, caller: Any, security: list[dict[str, list[str]]]
) -> None:
    """The kind of a guard is the scheme. Its functions are scopes, of which one suffices."""
    given = document(path, Answer={})
    if caller:
        given["paths"][path]["get"][CALLER_EXTENSION] = caller
    operation = merge_documents({service: given}, ROUTES)["paths"][path]["get"]
    assert operation["security"] == security
    assert CALLER_EXTENSION not in operation


def test_refusals_wear_the_envelope_of_their_api() -> None:
    """A refusal of the gateway is documented in the envelope that it is answered in."""
    given = {"auth": document("/user", Answer={}), "device": document("/ingest/v1/a", Answer={})}
    merged = merge_documents(given, ROUTES)

    def codes(path: str) -> list[str]:
        entry = merged["paths"][path]["get"]["responses"]["401"]["$ref"].rpartition("/")[2]
        content = merged["components"]["responses"][entry]["content"]["application/json"]
        name = content["schema"]["$ref"].rpartition("/")[2]
        return merged["components"]["schemas"][name]["required"]

    assert codes("/user") == ["status", "request_id", "error_code", "error_message"]
    assert codes("/ingest/v1/a") == ["status", "requestId", "errCode", "errMsg"]


def test_documents_are_not_changed() -> None:
    """The documents of services stay unchanged, because they are merged again later."""
    device = document("/device/openapi/v1/a", Answer={})
    merge_documents({"device": device}, ROUTES)
    assert device == document("/device/openapi/v1/a", Answer={})
