"""Shows the logs of flows to users who see the flows."""

from libs.common.errors import NotFound
from libs.common.http.console import Page
from libs.common.identity import Principal
from services.workflow.flows.service import FlowService
from services.workflow.logs.schemas import SearchLogs, ShownLog, ShownRun, shown_log, shown_run
from services.workflow.runs.store import RunStore

COLUMNS = {"id": "_id", "start_time": "startedAt", "time_cost": "timeCost", "status": "status"}


class LogService:
    """The operations on logs."""

    def __init__(self, flows: FlowService, store: RunStore) -> None:
        self._flows = flows
        self._store = store

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
        """One run with what each node did."""
        run = await self._store.get(user.tenant, run_id)
        if run is None:
            raise NotFound("Log not found!", field="log_id")
        await self._flows.visible(user, run.flow_id)
        return shown_run(run)
