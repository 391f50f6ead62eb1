"""Fields and types that several packages have on the wire."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from libs.common.errors import Forbidden, InvalidInput
from libs.common.http import console
from libs.common.http.console import name_constraint
from libs.common.http.ids import Id
from libs.common.identity import Principal, PrincipalKind

Name = Annotated[str, name_constraint(128)]

SingleLineText = Annotated[str, msgspec.Meta(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""A text of one line; may be empty."""

Text = Annotated[str, msgspec.Meta(max_length=1024)]

Tag = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$")]

MAX_TAGS = 20
"""Maximum tags of a device."""
Tags = Annotated[list[Tag], msgspec.Meta(max_length=MAX_TAGS)]

MAX_PAGE_SIZE = 1000
"""Maximum rows of a page, to which a larger page size is reduced."""
MAX_PAGE_NUMBER = 1_000_000_000

PageNumber = Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_NUMBER)]
"""Page numbers begin at 1."""

SORT_DIRECTION_BY_NAME = {"asc": 1, "desc": -1}


class SortBy(msgspec.Struct, forbid_unknown_fields=True):
    """A sort criterion; `direction` is `asc` or `desc` in any case."""

    property: str
    """Field to sort by, for example `name`."""
    direction: Annotated[
        str, msgspec.Meta(extra_json_schema={"extra": {"enum": ["asc", "desc"]}})
    ] = "asc"
    """`asc` (ascending) or `desc` (descending)."""


Sorts = Annotated[list[SortBy], msgspec.Meta(max_length=8)]


class Search(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Base of search bodies."""

    page_size: Annotated[int, msgspec.Meta(ge=1)]
    page_number: PageNumber
    sorts: Sorts | None = None

    def __post_init__(self) -> None:
        """Reduce the page size to the largest one."""
        self.page_size = min(self.page_size, MAX_PAGE_SIZE)


def build_order(sorts: Sequence[SortBy], columns: Mapping[str, str]) -> list[tuple[str, int]]:
    """Translate sort criteria to stored fields and directions, with `_id` at the end.

    `columns` maps the properties of the record to stored fields. If two criteria name one column,
    the first counts. Raises `InvalidInput` with the field of the wrong criterion.
    """
    order: dict[str, int] = {}
    direction = 1
    for at, sort in enumerate(sorts):
        if sort.property not in columns:
            raise InvalidInput(
                f"sorts[{at}].property: must be one of {', '.join(columns)}",
                field=f"sorts[{at}].property",
            )
        if sort.direction.lower() not in SORT_DIRECTION_BY_NAME:
            raise InvalidInput(
                f"sorts[{at}].direction: must be asc or desc", field=f"sorts[{at}].direction"
            )
        direction = SORT_DIRECTION_BY_NAME[sort.direction.lower()]
        order.setdefault(columns[sort.property], direction)
    order.setdefault("_id", direction)
    return list(order.items())


DeviceIds = Annotated[list[Id], msgspec.Meta(max_length=1000)]


class DeviceSelection(msgspec.Struct):
    """Base of bodies that select devices by id."""

    device_id_list: DeviceIds


class DeleteDevices(DeviceSelection):
    """Body of `POST /device/batch-delete`."""


class DeviceResult(console.ResponseModel, kw_only=True):
    """The result of an operation for one device of a selection."""

    device_id: str
    status: Literal["SUCCESS", "FAILED"]
    error_code: str | None = None
    error_message: str | None = None


def require_application(principal: Principal) -> int:
    """Return the id of the calling application; raise `Forbidden` for other callers."""
    if principal.kind is not PrincipalKind.APPLICATION:
        raise Forbidden("only applications may call this operation")
    return principal.application_id
