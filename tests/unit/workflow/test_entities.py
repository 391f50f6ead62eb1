"""Which entities a user may use in a flow."""

import pytest

from libs.common.contracts.access import GrantedResources
from libs.common.contracts.entities import ResolvedEntity
from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.grants import SUPER_ADMIN_GRANTS, Grants
from services.workflow.entities import EntityAccess

USER = Principal(kind=PrincipalKind.USER, tenant="t", subject="7")
DEVICE, OWN, CUSTOM = "lamps.device.L1.on", "lamps.integration.mode", "system.integration.c"


def entity(key: str, **fields) -> ResolvedEntity:
    """One that there is."""
    integration = key.partition(".")[0]
    return ResolvedEntity(
        key=key,
        integration=integration,
        member="m",
        name="n",
        type="PROPERTY",
        value_type="LONG",
        **({"id": 1, "thing_id": 5, "device": ".device." in key} | fields),
    )


KNOWN = {one.key: one for one in (entity(DEVICE), entity(OWN, id=2), entity(CUSTOM, id=3))}


class World:
    """Grants and entities."""

    def __init__(self, grants: Grants) -> None:
        self.grants = grants

    async def read(self, principal):
        return self.grants

    async def resolve(self, tenant, keys):
        return [KNOWN[key] for key in keys if key in KNOWN]


async def find_invisible(keys, *, everything=False, **granted):
    """Return the keys that a user with these grants may not use."""
    grants = (
        SUPER_ADMIN_GRANTS
        if everything
        else Grants(everything=False, resources=GrantedResources(version=1, **granted))
    )
    world = World(grants)
    return set(await EntityAccess(world, world).find_invisible(USER, keys))


@pytest.mark.parametrize(
    ("granted", "hidden"),
    [
        ({}, {DEVICE, OWN}),
        ({"devices": frozenset({5})}, {OWN}),
        ({"entities": frozenset({2})}, {DEVICE}),
        ({"integrations": frozenset({"lamps"})}, set()),
    ],
)
async def test_a_grant_of_the_thing_or_of_itself_shows_an_entity(granted, hidden):
    """Custom entities are everybody's."""
    assert await find_invisible([DEVICE, OWN, CUSTOM], **granted) == hidden


async def test_an_entity_that_does_not_exist_is_seen_by_nobody():
    """Not by super administrators either, who may use any pattern."""
    gone = "lamps.device.gone.on"
    assert await find_invisible([gone], integrations=frozenset({"lamps"})) == {gone}
    assert await find_invisible([gone, "*"], everything=True) == {gone}


@pytest.mark.parametrize(
    ("pattern", "seen"),
    [
        ("lamps.device.*", True),
        ("lamps.*", True),
        ("system.integration.*", True),
        ("lamps*", False),
        ("lam*", False),
        ("*.on", False),
        ("other.*", False),
    ],
)
async def test_a_pattern_needs_its_whole_integration(pattern, seen):
    """It begins with one that the user sees as a whole."""
    hidden = await find_invisible([pattern], integrations=frozenset({"lamps"}))
    assert hidden == (set() if seen else {pattern})
