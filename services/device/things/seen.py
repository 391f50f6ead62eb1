"""Which devices a user sees, as MongoDB conditions."""

from typing import Any

from libs.common.identity.grants import Grants

MANY = 1000
"""Granted devices from which on it is faster to walk the index of an order and pass over the
others than to look each of them up and sort (10,000 of 100,000: 10 ms against 70 ms)."""


def seen(grants: Grants) -> dict[str, Any]:
    """The condition that `grants` put; empty for everything."""
    if grants.everything:
        return {}
    devices = {"_id": {"$in": list(grants.resources.devices)}}
    if not grants.resources.integrations:
        return devices
    return {"$or": [devices, {"integration": {"$in": list(grants.resources.integrations)}}]}


def seen_in_parts(grants: Grants) -> list[dict[str, Any]]:
    """Conditions of which every visible device meets exactly one.

    MongoDB counts the parts of a grant apart three times as fast as their union.
    """
    if grants.everything:
        return [{}]
    devices = {"_id": {"$in": list(grants.resources.devices)}}
    integrations = list(grants.resources.integrations)
    if not integrations:
        return [devices]
    return [
        {**devices, "integration": {"$nin": integrations}},
        {"integration": {"$in": integrations}},
    ]


_INDEXES = {
    "_id": "console_id",
    "name": "console_name",
    "integration": "console_key",
    "createdAt": "console_created",
}


def hint(grants: Grants, order: list[tuple[str, int]]) -> str | None:
    """The index to walk for an order, when MongoDB would not choose it."""
    if grants.everything or len(grants.resources.devices) < MANY:
        return None
    return _INDEXES.get(order[0][0])
