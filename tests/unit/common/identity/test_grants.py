"""What grants show of entities."""

import pytest

from libs.common.contracts.access import GrantedResources
from libs.common.contracts.entities import ResolvedEntity
from libs.common.identity.grants import SUPER_ADMIN_GRANTS, Grants
from libs.common.things import SYSTEM_INTEGRATION


def entity(integration: str = "direct", *, device: bool = True) -> ResolvedEntity:
    """An entity of the thing 7, in the group 5."""
    return ResolvedEntity(
        id=70,
        key="k",
        thing_id=7,
        integration=integration,
        device=device,
        member="m",
        name="n",
        type="PROPERTY",
        value_type="LONG",
        group=5,
    )


@pytest.mark.parametrize(
    ("granted", "visible"),
    [
        ({}, False),
        ({"devices": [7]}, True),
        ({"devices": [8]}, False),
        ({"groups": [5]}, True),
        ({"integrations": ["direct"]}, True),
        ({"entities": [70]}, True),
        ({"entities": [71]}, False),
    ],
)
def test_an_entity_is_seen_with_its_thing_or_by_itself(granted: dict, visible: bool):
    """Its device, its group, its integration or itself may be granted."""
    resources = GrantedResources(
        version=1, **{name: frozenset(values) for name, values in granted.items()}
    )
    assert Grants(everything=False, resources=resources).allows_entity(entity()) == visible
    assert SUPER_ADMIN_GRANTS.allows_entity(entity())


def test_custom_entities_are_everybodys():
    """Those of other integrations are not."""
    nothing = Grants(everything=False, resources=GrantedResources(version=1))
    assert nothing.allows_entity(entity(SYSTEM_INTEGRATION, device=False))
    assert not nothing.allows_entity(entity("direct", device=False))
