"""Which devices a user sees, as MongoDB conditions."""

from typing import Any

from msgspec.structs import replace

from libs.common.identity.grants import Grants

NOTHING: dict[str, Any] = {"_id": {"$in": []}}
"""Which no device meets."""
MANY = 1000
"""Granted devices from which on it is faster to walk the index of an order and pass over the
others than to look each of them up and sort (10,000 of 100,000: 10 ms against 70 ms)."""


def seen(grants: Grants) -> dict[str, Any]:
    """The condition that `grants` put; empty for everything."""
    if grants.everything:
        return {}
    either = [
        {field: {"$in": list(ids)}}
        for field, ids in (
            ("_id", grants.resources.devices),
            ("integration", grants.resources.integrations),
            ("group", grants.resources.groups),
        )
        if ids
    ]
    return {"$or": either} if len(either) > 1 else either[0] if either else NOTHING


def without_groups(grants: Grants) -> dict[str, Any]:
    """What `grants` show besides the devices of groups."""
    if grants.everything:
        return {}
    return seen(Grants(everything=False, resources=replace(grants.resources, groups=frozenset())))


def seen_in_parts(grants: Grants) -> list[dict[str, Any]]:
    """Conditions of which every visible device meets exactly one.

    MongoDB counts the parts of a grant apart three times as fast as their union.
    """
    if grants.everything:
        return [{}]
    parts: list[dict[str, Any]] = []
    others: dict[str, Any] = {}
    for field, ids in (
        ("integration", list(grants.resources.integrations)),
        ("group", list(grants.resources.groups)),
        ("_id", list(grants.resources.devices)),
    ):
        if ids:
            parts.append({field: {"$in": ids}, **others})
            others[field] = {"$nin": ids}
    return parts or [NOTHING]


WALKS = {
    "_id": "console_id",
    "name": "console_name",
    "integration": "console_key",
    "createdAt": "console_created",
    "updatedAt": "fleet_updated",
    "identifier": "fleet_identifier",
    "model": "fleet_model",
    "connectStatus": "fleet_status",
}
"""The indexes that have the orders of consoles, by the first field."""


def hint(grants: Grants, order: list[tuple[str, int]]) -> str | None:
    """The index to walk for an order, when MongoDB would not choose it."""
    if grants.everything or len(grants.resources.devices) < MANY:
        return None
    return WALKS.get(order[0][0])
