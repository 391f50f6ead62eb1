"""Which devices a user sees, as conditions."""

from itertools import product
from typing import Any

import pytest

from libs.common.contracts.access import GrantedResources
from libs.common.identity.grants import SUPER_ADMIN_GRANTS, Grants
from services.device.things.visibility import disjoint_conditions, granted_condition

DEVICES = [
    {"_id": number, "integration": integration, "group": group}
    for number, (integration, group) in enumerate(product(("direct", "lamps"), (None, 4, 5)))
]


def meets(device: dict[str, Any], condition: dict[str, Any]) -> bool:
    """Whether MongoDB would find a device by a condition of this kind."""
    for field, wanted in condition.items():
        if field == "$or":
            fits = any(meets(device, one) for one in wanted)
        elif "$in" in wanted:
            fits = device[field] in wanted["$in"]
        else:
            fits = device[field] not in wanted["$nin"]
        if not fits:
            return False
    return True


@pytest.mark.parametrize("devices", [(), (0, 4)])
@pytest.mark.parametrize("integrations", [(), ("lamps",)])
@pytest.mark.parametrize("groups", [(), (4,), (4, 5)])
def test_every_visible_device_meets_one_part(
    devices: tuple[int, ...], integrations: tuple[str, ...], groups: tuple[int, ...]
) -> None:
    """And the whole condition; all others meet none. `Grants` says the same of each alone."""
    resources = GrantedResources(1, frozenset(integrations), frozenset(devices), frozenset(groups))
    grants = Grants(everything=False, resources=resources)
    for device in DEVICES:
        visible = grants.allows_device(device["_id"], str(device["integration"]), device["group"])  # type: ignore[arg-type]
        assert meets(device, granted_condition(grants)) == visible
        assert sum(meets(device, part) for part in disjoint_conditions(grants)) == visible


def test_a_super_admin_sees_all() -> None:
    """Without a condition."""
    assert (granted_condition(SUPER_ADMIN_GRANTS), disjoint_conditions(SUPER_ADMIN_GRANTS)) == (
        {},
        [{}],
    )
