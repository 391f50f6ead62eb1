"""`/workflow/flows`: flows and their designs."""

from dataclasses import dataclass
from typing import Annotated

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter

from libs.common.errors import InvalidInput
from libs.common.http import RequestPrincipal, build_dependencies
from libs.common.http.console import Page, get, post, put
from libs.common.http.guards import allow_holders
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from libs.common.identity.functions import Function
from services.workflow.flows.model import (
    DeleteFlows,
    DesignResponse,
    FlowResponse,
    FlowVersion,
    SavedDesign,
    SaveDesign,
    SearchFlows,
    UpdateFlow,
)
from services.workflow.flows.service import FlowService

Flows = NamedDependency[FlowService]

MAX_VERSION_DIGITS = 9
"""Maximum digits of a version."""

VersionParameter = Annotated[
    str | None, QueryParameter(description="Version of the flow. Default: the latest version.")
]


@post("/search", guards=[allow_holders(Function.WORKFLOW_VIEW)])
async def search_flows(
    principal: RequestPrincipal, flows: Flows, data: JSONBody[SearchFlows]
) -> list[FlowResponse] | Page[FlowResponse]:
    """Search flows by part of their name, by default newest first."""
    return await flows.search(principal, data)


@put("/{flow_id:str}", guards=[allow_holders(Function.WORKFLOW_EDIT)])
async def update_flow(
    principal: RequestPrincipal, flows: Flows, flow_id: PathId, data: JSONBody[UpdateFlow]
) -> None:
    """Set name and remark of a flow."""
    await flows.set_name_and_remark(principal, flow_id, data)


@post("/batch-delete", guards=[allow_holders(Function.WORKFLOW_DELETE)])
async def delete_flows(
    principal: RequestPrincipal, flows: Flows, data: JSONBody[DeleteFlows]
) -> None:
    """Delete flows with their designs and logs. Unknown ids are ignored."""
    await flows.delete(principal, data.workflow_id_list)


@get("/{flow_id:str}/enable", guards=[allow_holders(Function.WORKFLOW_EDIT)])
async def enable_flow(principal: RequestPrincipal, flows: Flows, flow_id: PathId) -> None:
    """Enable a flow. The error lists the reasons if its design cannot run."""
    await flows.set_enabled(principal, flow_id, enabled=True)


@get("/{flow_id:str}/disable", guards=[allow_holders(Function.WORKFLOW_EDIT)])
async def disable_flow(principal: RequestPrincipal, flows: Flows, flow_id: PathId) -> None:
    """Disable a flow. Current runs finish."""
    await flows.set_enabled(principal, flow_id, enabled=False)


@get("/{flow_id:str}/design", guards=[allow_holders(Function.WORKFLOW_VIEW)])
async def get_design(
    principal: RequestPrincipal, flows: Flows, flow_id: PathId, version: VersionParameter = None
) -> DesignResponse:
    """Get a version of a flow's design. `version` in the response is the latest one."""
    wanted = _parse_version(version)
    return await flows.get_design(principal, flow_id, wanted)


@get("/{flow_id:str}/versions", guards=[allow_holders(Function.WORKFLOW_VIEW)])
async def list_flow_versions(
    principal: RequestPrincipal, flows: Flows, flow_id: PathId
) -> list[FlowVersion]:
    """List the stored versions of a flow's design, newest first."""
    return await flows.list_versions(principal, flow_id)


@post("/design", guards=[allow_holders(Function.WORKFLOW_ADD, Function.WORKFLOW_EDIT)])
async def save_design(
    principal: RequestPrincipal, flows: Flows, data: JSONBody[SaveDesign]
) -> SavedDesign:
    """Save a new flow, or a new version based on the version in the body."""
    return await flows.save(principal, data)


def _parse_version(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_VERSION_DIGITS):
        raise InvalidInput(f"must be a version number. Got `{text:.20}`.", field="version")
    return int(text)


@dataclass(frozen=True)
class FlowHandlerDependencies:
    """Dependencies of the operations on flows."""

    flows: FlowService


def flow_router(handlers: FlowHandlerDependencies) -> Router:
    """Return the router below `/workflow`."""
    return route_operations(globals(), "/flows", dependencies=build_dependencies(handlers))
