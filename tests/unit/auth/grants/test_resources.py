"""Resources of requests."""

import pytest

from libs.common.contracts.access import ResourceRef, ResourceType
from libs.common.errors import InvalidInput
from services.auth.accounts.grants import Resource
from services.auth.grants.schemas import ResourceReference, format_resources, parse_resources

DEVICE, INTEGRATION = ResourceType.DEVICE, ResourceType.INTEGRATION


def test_ids_are_read_in_either_spelling_and_counted_once() -> None:
    """Integrations keep their names, also when they look like numbers."""
    found = parse_resources(
        [
            ResourceReference("5", DEVICE),
            ResourceReference(5, DEVICE),
            ResourceReference("005", DEVICE),
            ResourceReference("5", ResourceType.ENTITY),
            ResourceReference("5", INTEGRATION),
        ]
    )

    assert found == [
        Resource(DEVICE, 5),
        Resource(ResourceType.ENTITY, 5),
        Resource(INTEGRATION, "5"),
    ]
    assert format_resources(found) == ["DEVICE 5", "ENTITY 5", "INTEGRATION 5"]


def test_resources_of_other_services_are_read_alike() -> None:
    """They send strings."""
    assert parse_resources([ResourceRef("7", DEVICE)]) == [Resource(DEVICE, 7)]


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        *((DEVICE, sent) for sent in ("", "x", "-1", "0", 0, -1, "1.0", "1e3", "²", "٣", "1" * 17)),
        (DEVICE, 2**53),
        (DEVICE, "9007199254740992"),
        *((INTEGRATION, sent) for sent in ("", " ", 5, "a\nb", "x" * 128)),
    ],
)
def test_a_bad_id_is_named(kind: ResourceType, sent: int | str) -> None:
    """By its place in the request."""
    with pytest.raises(InvalidInput) as caught:
        parse_resources([ResourceReference("5", DEVICE), ResourceReference(sent, kind)])

    assert caught.value.field == "resources[1].id"


def test_nothing_is_no_request() -> None:
    """The code is the one that consoles know."""
    with pytest.raises(InvalidInput, match="must not be empty") as caught:
        parse_resources([])

    assert caught.value.code == "parameter_syntax_error"
