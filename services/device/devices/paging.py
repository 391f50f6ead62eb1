"""Pages and their order, the same for devices and RPS records."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from libs.common.errors import InvalidInput

LARGEST_PAGE = 1000
LARGEST_NUMBER = 1_000_000_000

PageSize = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_PAGE)]
PageNumber = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_NUMBER)]
"""From 1."""

DIRECTIONS = {"asc": 1, "desc": -1}


class Sort(msgspec.Struct, forbid_unknown_fields=True):
    """One criterion; `direction` is `asc` or `desc` in any case."""

    property: str
    direction: str = "asc"


Sorts = Annotated[list[Sort], msgspec.Meta(max_length=8)]


def order_of(sorts: Sequence[Sort], columns: Mapping[str, str]) -> list[tuple[str, int]]:
    """Translate criteria to columns and directions, ending in the unique `_id`.

    `columns` maps the properties of the record to stored fields. Of two criteria for one
    column the first counts. Raises `InvalidInput` naming the criterion at fault.
    """
    order: dict[str, int] = {}
    direction = 1
    for at, sort in enumerate(sorts):
        if sort.property not in columns:
            raise InvalidInput(
                f"sorts[{at}].property: must be one of {', '.join(columns)}",
                field=f"sorts[{at}].property",
            )
        if sort.direction.lower() not in DIRECTIONS:
            raise InvalidInput(
                f"sorts[{at}].direction: must be asc or desc", field=f"sorts[{at}].direction"
            )
        direction = DIRECTIONS[sort.direction.lower()]
        order.setdefault(columns[sort.property], direction)
    order.setdefault("_id", direction)
    return list(order.items())
