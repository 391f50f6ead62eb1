"""Groups on the wire."""

from typing import Annotated

import msgspec

from libs.common.http import console

GroupName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=127,
        pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$",
        description="1 to 127 characters, not all blank, none a control character",
    ),
]


class FindGroups(console.PageRequest, kw_only=True):
    """Body of `POST /device-group/search`: a part of the name, in any case."""

    name: Annotated[str, msgspec.Meta(max_length=127)] | None = None
    with_device_count: bool | None = None


class NamedGroup(msgspec.Struct):
    """Body of `POST /device-group` and `PUT /device-group/{group_id}`."""

    name: GroupName


class GroupRef(msgspec.Struct):
    """Answer of `POST /device-group`."""

    id: str


class ShownGroup(console.Shown, kw_only=True):
    """A group in a list."""

    id: str
    name: str
    device_count: int | None = None
    """Of the devices that the caller sees, where it is asked for; absent when there are none."""


class GroupNumber(msgspec.Struct):
    """Answer of `GET /device-group/number`."""

    number: int
