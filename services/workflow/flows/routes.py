"""`/workflow/flows`: flows and their designs."""

from typing import Annotated

from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter

from libs.common.errors import InvalidInput
from libs.common.http import HttpRequest, principal_of
from libs.common.http.console import Answer, Page, PathId, answer, get, post, put
from libs.common.http.guards import holders
from libs.common.identity.functions import Function
from services.workflow.flows.schemas import (
    DeleteFlows,
    SavedDesign,
    SaveDesign,
    SearchFlows,
    ShownDesign,
    ShownFlow,
    UpdateFlow,
)
from services.workflow.flows.service import FlowService

LONGEST_VERSION = 9
"""Digits."""

Version = Annotated[str | None, QueryParameter(description="Empty, or absent, is the newest")]


@post("/search", guards=[holders(Function.WORKFLOW_VIEW)], summary="Search flows")
async def search_flows(
    request: HttpRequest, flows: NamedDependency[FlowService], data: JSONBody[SearchFlows]
) -> Answer[list[ShownFlow] | Page[ShownFlow]]:
    """The flows that the caller sees, by part of their name, the newest first."""
    return answer(request, await flows.search(principal_of(request), data))


@put("/{flow_id:str}", guards=[holders(Function.WORKFLOW_EDIT)], summary="Update a flow")
async def update_flow(
    request: HttpRequest,
    flows: NamedDependency[FlowService],
    flow_id: PathId,
    data: JSONBody[UpdateFlow],
) -> Answer[None]:
    """Set name and remark."""
    await flows.update(principal_of(request), flow_id, data)
    return answer(request)


@post("/batch-delete", guards=[holders(Function.WORKFLOW_DELETE)], summary="Delete flows")
async def delete_flows(
    request: HttpRequest, flows: NamedDependency[FlowService], data: JSONBody[DeleteFlows]
) -> Answer[None]:
    """Delete flows with their designs and logs; unknown ones are passed over."""
    await flows.delete(principal_of(request), data.workflow_id_list)
    return answer(request)


@get("/{flow_id:str}/enable", guards=[holders(Function.WORKFLOW_EDIT)], summary="Enable a flow")
async def enable_flow(
    request: HttpRequest, flows: NamedDependency[FlowService], flow_id: PathId
) -> Answer[None]:
    """Let a flow run; refused with the reasons when its design cannot."""
    await flows.switch(principal_of(request), flow_id, enabled=True)
    return answer(request)


@get("/{flow_id:str}/disable", guards=[holders(Function.WORKFLOW_EDIT)], summary="Disable a flow")
async def disable_flow(
    request: HttpRequest, flows: NamedDependency[FlowService], flow_id: PathId
) -> Answer[None]:
    """Let a flow run no more; what runs already ends by itself."""
    await flows.switch(principal_of(request), flow_id, enabled=False)
    return answer(request)


@get("/{flow_id:str}/design", guards=[holders(Function.WORKFLOW_VIEW)], summary="Show a design")
async def get_design(
    request: HttpRequest,
    flows: NamedDependency[FlowService],
    flow_id: PathId,
    version: Version = None,
) -> Answer[ShownDesign]:
    """A version of a flow's design. `version` of the answer is that of the newest."""
    wanted = _version(version)
    return answer(request, await flows.design(principal_of(request), flow_id, wanted))


@post(
    "/design",
    guards=[holders(Function.WORKFLOW_ADD, Function.WORKFLOW_EDIT)],
    summary="Save a design",
)
async def save_design(
    request: HttpRequest, flows: NamedDependency[FlowService], data: JSONBody[SaveDesign]
) -> Answer[SavedDesign]:
    """Save a new flow, or a new version of one; name the version that it was made from."""
    return answer(request, await flows.save(principal_of(request), data))


def _version(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= LONGEST_VERSION):
        raise InvalidInput(f"Invalid Version: {text:.20}", field="version")
    return int(text)


ROUTES = (
    search_flows,
    update_flow,
    delete_flows,
    enable_flow,
    disable_flow,
    get_design,
    save_design,
)
