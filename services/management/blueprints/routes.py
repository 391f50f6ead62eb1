"""`/blueprint-library-setting`: the source of device blueprints, of which there is one."""

from typing import Annotated, Literal

import msgspec
from litestar import Router
from litestar.params import JSONBody

from libs.common.errors import InvalidInput
from libs.common.http.console import get, post
from libs.common.http.guards import holders
from libs.common.http.operations import operations_of
from libs.common.identity.functions import Function

NONE_TAKEN = "blueprint_library_resources_fetch_failed"


class BlueprintSource(msgspec.Struct):
    """Answer of `GET /blueprint-library-setting`; there is nothing to have been synchronized."""

    current_source_type: Literal["DEFAULT"] = msgspec.field(default="DEFAULT")


class SetBlueprintSource(msgspec.Struct):
    """Body of `POST /blueprint-library-setting`."""

    source_type: Literal["DEFAULT", "UPLOAD"]
    type: Literal["ZIP", "GITHUB"] | None = None
    url: Annotated[str, msgspec.Meta(max_length=1024)] | None = None


@get(
    guards=[holders(Function.CREDENTIALS_VIEW, Function.CREDENTIALS_EDIT)],
    summary="Get the source of blueprints",
)
async def get_blueprint_source() -> BlueprintSource:
    """`DEFAULT`: the built-in one, which has no blueprints."""
    return BlueprintSource()


@post(
    guards=[holders(Function.CREDENTIALS_EDIT)],
    summary="Set the source of blueprints",
    example={"source_type": "DEFAULT"},
)
async def set_blueprint_source(data: JSONBody[SetBlueprintSource]) -> None:
    """`DEFAULT` is what it is already; libraries are not taken: nothing here reads them."""
    if data.source_type != "DEFAULT":
        raise InvalidInput(
            "blueprint libraries are not taken here", field="source_type", code=NONE_TAKEN
        )


ROUTER = Router(
    "/blueprint-library-setting", route_handlers=operations_of(globals()), tags=["Settings"]
)
