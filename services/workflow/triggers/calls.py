"""Keeps the service entities of flows, and runs flows that are called."""

import asyncio
import logging
from uuid import uuid4

import msgspec

from libs.common.contracts.flows import (
    CallFlow,
    FlowInput,
    FlowOutputs,
    PutFlowService,
)
from libs.common.errors import (
    Conflict,
    InvalidInput,
    ThingwayError,
    UpstreamFailed,
    UpstreamTimeout,
)
from libs.common.telemetry.tracing import current_trace
from services.workflow.engine.runner import Engine
from services.workflow.entities import Entities
from services.workflow.errors import NodeFailed
from services.workflow.flows.deployment import begins_with_trigger
from services.workflow.flows.model import Deployments, Flow
from services.workflow.flows.store import FlowStore
from services.workflow.graph.design import DesignNode
from services.workflow.nodes.parameters import read, read_valid
from services.workflow.nodes.trigger import Trigger, TriggerInput, TriggerParameters
from services.workflow.runs.model import Cause
from services.workflow.triggers.deployed_flows import DeployedFlows

FIELD = "exchange"
"""Of the request that calls a service."""

AT_ONCE = 4096
"""Calls that are handled at a time, half of them of one tenant at most (`RpcServer`)."""

log = logging.getLogger(__name__)


class FlowServices(Deployments):
    """Lets service entities come and go with flows.

    The entity is there before the flow is, so that nobody sees a flow without it; it goes
    when the flow has gone. That of a disabled flow, or one that a crash left behind, refuses to be
    called.
    """

    def __init__(self, entities: Entities, flows: FlowStore) -> None:
        self._entities = entities
        self._flows = flows

    async def prepare(self, flow: Flow, entry: DesignNode) -> None:
        """Make the entity of a flow that begins with a trigger, or bring it up to date.

        What a draft has of inputs may not be readable yet; then the entity stays as it was.
        """
        if entry.component_name != Trigger.name:
            return
        parameters = read_valid(TriggerParameters, entry.data.parameters)
        if parameters is not None:
            service = PutFlowService(
                tenant=flow.tenant,
                flow_id=flow.id,
                name=flow.name,
                description=flow.remark,
                inputs=list(map(_input, parameters.entity_configs)),
            )
            await self._entities.put_service(service)

    async def changed(self, tenant: str, flow_id: int) -> None:
        """Remove the entity of a flow that begins with something else now."""
        flow = await self._flows.get(tenant, flow_id)
        if flow is not None and not begins_with_trigger(flow.design):
            await self.forget(tenant, flow_id)

    async def forget(self, tenant: str, flow_id: int) -> None:
        """Remove the entity of a flow that is gone."""
        try:
            await self._entities.remove_service(tenant, flow_id)
        except ThingwayError as error:
            log.warning("the entity of flow %d is left over: %s", flow_id, error)


class FlowCaller:
    """Runs flows that are called."""

    def __init__(self, deployed: DeployedFlows, engine: Engine) -> None:
        self._deployed = deployed
        self._engine = engine
        self._entry = Trigger()

    async def call(self, wanted: CallFlow) -> FlowOutputs:
        """Run a flow and give its last output, when that is a map.

        Raises `Conflict` for a flow that does not run, `InvalidInput` for inputs that it does
        not take, `UpstreamFailed` with the reason when the run failed, `UpstreamTimeout` when
        it takes longer than the caller waits: it goes on then. Raises `TooManyRequests` when so
        many runs wait that this one cannot.
        """
        flow = await self._deployed.find(wanted.tenant, wanted.flow_id)
        if flow is None or flow.component != Trigger.name:
            raise Conflict(f"flow {wanted.flow_id} is not enabled", field=FIELD)
        parameters = read(TriggerParameters, flow.parameters)
        try:
            entered = self._entry.entered(parameters, wanted.inputs)
        except NodeFailed as error:
            raise InvalidInput(str(error), field=FIELD) from error
        cause = Cause(
            kind="SERVICE",
            key=f"s-{uuid4().hex}",
            hops=wanted.hops,
            trace=current_trace(),
            user_id=wanted.user_id,
        )
        try:
            async with asyncio.timeout(wanted.seconds):
                run = await self._engine.start(flow, entered, cause)
        except TimeoutError as error:
            text = f"flow {flow.flow_id} takes longer than {wanted.seconds:g} s; it goes on"
            raise UpstreamTimeout(text, field=FIELD) from error
        if run.status == "ERROR":
            raise UpstreamFailed(f"the flow failed: {run.error}", field=FIELD)
        return FlowOutputs(dict(run.output) if isinstance(run.output, dict) else {})


def _input(one: TriggerInput) -> FlowInput:
    return msgspec.convert(
        {"identifier": one.identify, "name": one.name, "type": one.type}, FlowInput
    )
