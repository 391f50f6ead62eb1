"""MongoDB conditions on devices: their owner, and which of them a user may see."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from libs.common.identity.grants import Grants

MATCHES_NOTHING: dict[str, Any] = {"_id": {"$in": []}}
"""A condition that no device meets."""
MIN_GRANTED_FOR_INDEX = 1000
"""Number of granted devices from which an index in sort order is faster than reading and sorting
each device (10,000 of 100,000 devices: 10 ms instead of 70 ms)."""


def granted_condition(grants: Grants) -> dict[str, Any]:
    """Return the condition of the granted devices; empty if all are granted."""
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
    return {"$or": either} if len(either) > 1 else either[0] if either else MATCHES_NOTHING


def condition_without_groups(grants: Grants) -> dict[str, Any]:
    """Return the condition of the devices that are granted by id or integration, not by group."""
    if grants.everything:
        return {}
    return granted_condition(
        Grants(everything=False, resources=replace(grants.resources, groups=frozenset()))
    )


def disjoint_conditions(grants: Grants) -> list[dict[str, Any]]:
    """Return disjoint conditions that together match the granted devices.

    MongoDB counts them one by one three times as fast as their union.
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
    return parts or [MATCHES_NOTHING]


INDEX_BY_SORT_FIELD = {
    "_id": "console_id",
    "name": "console_name",
    "integration": "console_key",
    "createdAt": "console_created",
    "updatedAt": "fleet_updated",
    "identifier": "fleet_identifier",
    "model": "fleet_model",
    "connectStatus": "fleet_status",
}
"""The indexes for the sort orders of consoles, by their first field."""


def sort_index_hint(grants: Grants, order: list[tuple[str, int]]) -> str | None:
    """Return the index with the given order if it is faster than the choice of MongoDB, or None."""
    if grants.everything or len(grants.resources.devices) < MIN_GRANTED_FOR_INDEX:
        return None
    return INDEX_BY_SORT_FIELD.get(order[0][0])


Condition = dict[str, Any]
"""A MongoDB condition on devices."""


def owner_condition(
    tenant: str, device_id: int | Condition, application_id: int | None = None
) -> Condition:
    """Return the condition that devices belong to a tenant and, if given, to an application.

    `device_id` is the id of one device, or a condition on ids.
    """
    query: Condition = {"_id": device_id, "tenant": tenant}
    if application_id is not None:
        query["application.applicationId"] = application_id
    return query


def identifier_condition(tenant: str, integration: str, identifiers: Iterable[str]) -> Condition:
    """Return the condition of things with these identifiers of their integration."""
    identifier_filter = {"$in": list(identifiers)}
    return {"tenant": tenant, "integration": integration, "identifier": identifier_filter}


def deletable_condition(tenant: str, device_id: int, application_id: int | None) -> Condition:
    """Return the condition that the tenant or application may delete a device."""
    if application_id is None:
        return owner_condition(tenant, device_id)
    owner_filter = {"application.applicationId": application_id}
    former = {"application": None, "removedFrom": application_id}
    return {**owner_condition(tenant, device_id), "$or": [owner_filter, former]}


def combine_conditions(tenant: str, conditions: Sequence[Condition]) -> Condition:
    """Return the conjunction of conditions, with the indexed `tenant` first."""
    given_conditions = [condition for condition in conditions if condition]
    return {"tenant": tenant, **({"$and": given_conditions} if given_conditions else {})}
