"""Conditions on devices: whose they are."""

from collections.abc import Sequence
from typing import Any

Condition = dict[str, Any]
"""A MongoDB condition on devices."""


def owned(tenant: str, device_id: int | Condition, application_id: int | None = None) -> Condition:
    """The condition that a device, or some, belong to a tenant and perhaps an application."""
    query: Condition = {"_id": device_id, "tenant": tenant}
    if application_id is not None:
        query["application.applicationId"] = application_id
    return query


def deletable(tenant: str, device_id: int, application_id: int | None) -> Condition:
    """The condition that the tenant, or an application of it, may delete a device."""
    if application_id is None:
        return owned(tenant, device_id)
    mine = {"application.applicationId": application_id}
    former = {"application": None, "removedFrom": application_id}
    return {**owned(tenant, device_id), "$or": [mine, former]}


def all_of(tenant: str, conditions: Sequence[Condition]) -> Condition:
    """One condition of many; the plain one that indexes know best comes first."""
    given = [condition for condition in conditions if condition]
    return {"tenant": tenant, **({"$and": given} if given else {})}
