"""Names in the documents of services."""

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
