"""Ids of devices in paths, and the application that asks."""

from typing import Annotated

from litestar.params import PathParameter

from libs.common.errors import Forbidden
from libs.common.http.ids import Id
from libs.common.identity import Kind, Principal

DeviceId = Annotated[Id, PathParameter(description="Id given when it was added")]


def application_of(principal: Principal) -> int:
    """The application that asks; raise `Forbidden` when it is none."""
    if principal.kind is not Kind.APPLICATION:
        raise Forbidden("this operation is for applications")
    return principal.application_id
