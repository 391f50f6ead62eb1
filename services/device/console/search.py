"""What a console's search for devices asks, as MongoDB filters and order."""

from dataclasses import dataclass
from typing import Any

from libs.common.identity.grants import Grants
from libs.common.store.mongo import containing, pattern_of
from services.device.console.schemas import SearchDevices
from services.device.things.seen import hint, seen, seen_in_parts
from services.device.things.store import Query

COLUMNS = {
    "id": "_id",
    "key": "key",
    "name": "name",
    "identifier": "identifier",
    "integration": "integration",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A page, and conditions of which every device of the whole list meets exactly one."""

    query: Query
    counted: list[dict[str, Any]]


def wanted_of(tenant: str, grants: Grants, search: SearchDevices) -> Wanted:
    """Translate a search by a user with `grants`; raise `InvalidInput` for a wrong order."""
    base: dict[str, Any] = {"tenant": tenant}
    if search.name:
        base["name"] = containing(search.name)
    if search.identifier:
        base["snKey"] = {"$regex": pattern_of(search.identifier.upper())}
    order = _order(search)
    return Wanted(
        Query(base | seen(grants), order, search.skip, search.size, hint(grants, order)),
        [base | part for part in seen_in_parts(grants)],
    )


def _order(search: SearchDevices) -> list[tuple[str, int]]:
    """The order; the key is the integration, then the identifier.

    The last criterion, the id, runs as the others do, so that an index can be walked.
    """
    order: list[tuple[str, int]] = []
    for column, direction in search.order(COLUMNS):
        parts = ("integration", "identifier") if column == "key" else (column,)
        order += [(part, direction) for part in parts]
    asked = {sort.property for sort in search.sorts or ()}
    if len(order) > 1 and "id" not in asked:
        order[-1] = ("_id", order[0][1])
    return order
