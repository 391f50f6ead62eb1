"""Names in the documents of services."""

import json
from pathlib import Path

import pytest

from libs.common.http.document import schema_name


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Device", "Device"),
        ("Success[Device]", "DeviceSuccess"),
        ("Answer[Page[Device]]", "DevicePageAnswer"),
        ("Answer[UnionType[list[Device], Page[Device]]]", "DeviceListOrPageAnswer"),
        ("Answer[NoneType]", "EmptyAnswer"),
        ("Answer[dict[str, list[Device]]]", "DeviceListMapAnswer"),
    ],
)
def test_schemas_are_named_for_what_they_hold(title: str, name: str) -> None:
    """Nobody has to know Python to read the name of a generic type."""
    assert schema_name(title) == name


ROOT = Path(__file__).parents[4]
CLEAR = {"data", "description", "grant_type", "id", "name", "status", "type"}
"""Names of fields that the description of their schema explains."""
UNDESCRIBED = {"Assist", "GatewayConsoleError", "GatewayError"}
"""Hints that the specification names only, and the errors that `Failure` describes."""
DOCUMENTS = ["clients/python/openapi.json", "console/openapi.json"]


@pytest.mark.parametrize("path", DOCUMENTS)
def test_every_parameter_has_a_description(path: str) -> None:
    """An integrator learns the meaning of a parameter from the document alone."""
    assert {
        (parameter["name"], operation["operationId"])
        for item in json.loads((ROOT / path).read_text())["paths"].values()
        for operation in item.values()
        for parameter in operation.get("parameters", ())
        if not parameter.get("description")
    } == set()


@pytest.mark.parametrize("path", [*DOCUMENTS, "docs/reference/asyncapi.json"])
def test_every_schema_and_field_has_a_description(path: str) -> None:
    """An integrator learns the purpose of schemas and fields from the document alone."""
    schemas = json.loads((ROOT / path).read_text())["components"]["schemas"]
    assert [name for name, schema in schemas.items() if not schema.get("description")] == []
    unclear = {
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, entry in schema.get("properties", {}).items()
        if name not in UNDESCRIBED and field not in CLEAR and not entry.get("description")
    }
    assert unclear == set()
