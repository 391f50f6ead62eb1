"""Shows the logs of flows to users who see the flows."""

from libs.common.contracts.entities import MOST
from libs.common.errors import NotFound
from libs.common.http.console import Page
from libs.common.identity import Principal
from services.workflow.entities import Entities
from services.workflow.flows.service import FlowService
from services.workflow.logs.concealing import entity_keys, without_values
from services.workflow.logs.schemas import SearchLogs, ShownLog, ShownRun, shown_log, shown_run
from services.workflow.runs.store import RunStore

COLUMNS = {"id": "_id", "start_time": "startedAt", "time_cost": "timeCost", "status": "status"}


class LogService:
    """The operations on logs."""

    def __init__(self, flows: FlowService, store: RunStore, entities: Entities) -> None:
        self._flows = flows
        self._store = store
        self._entities = entities

    async def search(
        self, user: Principal, flow_id: int, wanted: SearchLogs
    ) -> list[ShownLog] | Page[ShownLog]:
        """Runs of a flow, the newest first."""
        await self._flows.visible(user, flow_id)
        runs, total = await self._store.search(
            user.tenant,
            flow_id,
            status=wanted.status or "",
            order=wanted.order(COLUMNS),
            skip=wanted.skip,
            limit=wanted.limit,
        )
        return wanted.listed([shown_log(run) for run in runs], total)

    async def detail(self, user: Principal, run_id: int) -> ShownRun:
        """One run with what each node did, without values that are write-only now."""
        run = await self._store.get(user.tenant, run_id)
        if run is None:
            raise NotFound("Log not found!", field="log_id")
        await self._flows.visible(user, run.flow_id)
        keys = entity_keys(run.traces, MOST)
        known = await self._entities.resolve(user.tenant, keys) if keys else ()
        hidden = {one.key for one in known if one.write_only}
        if hidden:
            run.traces = without_values(run.traces, hidden)
        return shown_run(run)
