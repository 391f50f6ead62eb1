"""Logs of flows for users who may see the flows.

Values of write-only entities are masked. An old run may contain them, if its property became
write-only later (decision 0044).
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody
from msgspec.structs import asdict, replace

from libs.common.contracts.entities import MAX_RESOLVED_KEYS
from libs.common.errors import NotFound
from libs.common.http import RequestPrincipal, build_dependencies
from libs.common.http.console import Page, PageRequest, ResponseModel, get, post
from libs.common.http.guards import allow_holders
from libs.common.http.ids import PathId
from libs.common.http.operations import route_operations
from libs.common.identity import Principal
from libs.common.identity.functions import Function
from services.workflow.entities import Entities
from services.workflow.flows.service import FlowService
from services.workflow.runs.model import Run, TraceItem
from services.workflow.runs.store import RunStore

HIDDEN_VALUE_MASK = "******"
_ENTITY_KEY = re.compile(r'"([^"\\\s]{1,500}\.[^"\\\s]{1,500})\\?"\s*:')
"""Matches a name that may be an entity key. In truncated texts, quotes are escaped."""
FinalStatus = Literal["SUCCESS", "ERROR"]


def find_possible_entity_keys(traces: Iterable[TraceItem], maximum: int) -> list[str]:
    """Return up to `maximum` names in inputs and outputs that may be entity keys."""
    keys: dict[str, None] = {}
    for trace in traces:
        for text in (trace.input, trace.output):
            for match in _ENTITY_KEY.finditer(text or ""):
                keys.setdefault(match[1])
    return list(keys)[:maximum]


def mask_values(traces: Iterable[TraceItem], hidden: Collection[str]) -> list[TraceItem]:
    """Return traces with masked values of the `hidden` entities."""
    return [
        replace(
            trace, input=_mask_text(trace.input, hidden), output=_mask_text(trace.output, hidden)
        )
        for trace in traces
    ]


def _mask_text(text: str | None, hidden: Collection[str]) -> str | None:
    if text is None or not any(key in text for key in hidden):
        return text
    return msgspec.json.encode(_mask_value(msgspec.json.decode(text), hidden)).decode()


def _mask_value(value: Any, hidden: Collection[str]) -> Any:
    if isinstance(value, dict):
        if isinstance(cut := value.get("truncated"), str) and any(key in cut for key in hidden):
            return value | {"truncated": HIDDEN_VALUE_MASK}
        return {
            key: HIDDEN_VALUE_MASK
            if key in hidden and item is not None
            else _mask_value(item, hidden)
            for key, item in value.items()
        }
    return [_mask_value(item, hidden) for item in value] if isinstance(value, list) else value


class SearchLogs(PageRequest, kw_only=True):
    """Body of `POST /workflow/flows/{id}/logs/search`."""

    status: Literal["SUCCESS", "ERROR", ""] | None = None


class RunSummary(ResponseModel, kw_only=True):
    """A run in a list. `start_time` and `time_cost` are in ms."""

    id: str
    start_time: int
    time_cost: int
    status: FinalStatus
    version: int
    """Version of the flow's design."""


class RunDetail(RunSummary, kw_only=True):
    """A run with the trace of each node. The entry node has only an output."""

    error_message: str | None = None
    """Reason of the failure, also of a run that never started."""
    trace_info: list[TraceItem]
    """Traces of the nodes, in the order in which the nodes finished."""


def final_status(run: Run) -> FinalStatus:
    """Return the final status of a run."""
    return "SUCCESS" if run.status == "SUCCESS" else "ERROR"


@dataclass(frozen=True)
class LogService:
    """The operations on logs."""

    flows: FlowService
    store: RunStore
    entities: Entities

    async def search(
        self, user: Principal, flow_id: int, request: SearchLogs
    ) -> list[RunSummary] | Page[RunSummary]:
        """Return one page of a flow's runs, by default newest first."""
        await self.flows.get_visible(user, flow_id)
        runs, total = await self.store.search(user.tenant, flow_id, request.status or "", request)
        return request.listed(list(map(_run_summary, runs)), total)

    async def get_run(self, user: Principal, run_id: int) -> RunDetail:
        """Return a run with its traces, without values that are write-only now."""
        run = await self.store.get(user.tenant, run_id)
        if run is None:
            raise NotFound(f"run {run_id} does not exist", field="log_id")
        await self.flows.get_visible(user, run.flow_id)
        keys = find_possible_entity_keys(run.traces, MAX_RESOLVED_KEYS)
        entities = await self.entities.resolve(user.tenant, keys) if keys else ()
        hidden = {entity.key for entity in entities if entity.write_only}
        traces = mask_values(run.traces, hidden) if hidden else run.traces
        return RunDetail(**asdict(_run_summary(run)), error_message=run.error, trace_info=traces)


def _run_summary(run: Run) -> RunSummary:
    return RunSummary.from_fields(run, start_time=run.started_at, status=final_status(run))


@post("/{flow_id:str}/logs/search", guards=[allow_holders(Function.WORKFLOW_VIEW)])
async def search_flow_logs(
    principal: RequestPrincipal,
    logs: NamedDependency[LogService],
    flow_id: PathId,
    data: JSONBody[SearchLogs],
) -> list[RunSummary] | Page[RunSummary]:
    """Search the runs of a flow, by default newest first. Tests are not included."""
    return await logs.search(principal, flow_id, data)


@get("/logs/{log_id:str}", guards=[allow_holders(Function.WORKFLOW_VIEW)])
async def get_flow_log(
    principal: RequestPrincipal, logs: NamedDependency[LogService], log_id: PathId
) -> RunDetail:
    """Get the input, output and duration of each node of a run."""
    return await logs.get_run(principal, log_id)


@dataclass(frozen=True)
class LogHandlerDependencies:
    """Dependencies of the operations on logs."""

    logs: LogService


def log_router(handlers: LogHandlerDependencies) -> Router:
    """Return the router below `/workflow`."""
    return route_operations(globals(), "/flows", dependencies=build_dependencies(handlers))
