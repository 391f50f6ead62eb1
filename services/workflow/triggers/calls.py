"""Maintains the service entities of flows, and runs flows that are called."""

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
from services.workflow.flows.deployment import starts_with_trigger
from services.workflow.flows.model import DeploymentObserver, Flow
from services.workflow.flows.store import FlowStore
from services.workflow.graph.design import DesignNode
from services.workflow.nodes.parameters import convert_parameters, read_if_valid
from services.workflow.nodes.trigger import Trigger, TriggerInput, TriggerParameters
from services.workflow.runs.model import Cause
from services.workflow.triggers.deployed_flows import DeployedFlows

FIELD = "exchange"
"""Field of service call requests, for errors."""

AT_ONCE = 4096
"""Maximum concurrent calls; one tenant may use half of them (`RpcServer`)."""

log = logging.getLogger(__name__)


class FlowServices(DeploymentObserver):
    """Keeps service entities in step with flows.

    The entity is created before the flow, so that a flow always has its entity, and is deleted
    after the flow. The entity of a disabled flow, or one left after a crash, rejects calls.
    """

    def __init__(self, entities: Entities, flows: FlowStore) -> None:
        self._entities = entities
        self._flows = flows

    async def prepare(self, flow: Flow, entry: DesignNode) -> None:
        """Create or update the entity of a flow that starts with a trigger node.

        If the inputs of a draft are invalid, the entity does not change.
        """
        if entry.component_name != Trigger.name:
            return
        parameters = read_if_valid(TriggerParameters, entry.data.parameters)
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
        """Delete the entity of a flow that starts with another node now."""
        flow = await self._flows.get(tenant, flow_id)
        if flow is not None and not starts_with_trigger(flow.design):
            await self.forget(tenant, flow_id)

    async def forget(self, tenant: str, flow_id: int) -> None:
        """Delete the entity of a deleted flow."""
        try:
            await self._entities.remove_service(tenant, flow_id)
        except ThingwayError as error:
            log.warning("the service of flow %d was not deleted: %s", flow_id, error)


class FlowCaller:
    """Runs flows that are called."""

    def __init__(self, deployed: DeployedFlows, engine: Engine) -> None:
        self._deployed = deployed
        self._engine = engine
        self._entry = Trigger()

    async def call(self, wanted: CallFlow) -> FlowOutputs:
        """Run a flow and return its last output if it is a map.

        Raises `Conflict` for a disabled flow and `InvalidInput` for invalid inputs. Raises
        `UpstreamFailed` with the reason if the run failed, and `UpstreamTimeout` if it takes longer
        than the caller waits (the run continues). Raises `TooManyRequests` if too many runs wait.
        """
        flow = await self._deployed.find(wanted.tenant, wanted.flow_id)
        if flow is None or flow.component != Trigger.name:
            raise Conflict(f"flow {wanted.flow_id} is not enabled", field=FIELD)
        parameters = convert_parameters(TriggerParameters, flow.parameters)
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
            text = f"flow {flow.flow_id} takes longer than {wanted.seconds:g} s; it continues"
            raise UpstreamTimeout(text, field=FIELD) from error
        if run.status == "ERROR":
            raise UpstreamFailed(f"the flow failed: {run.error}", field=FIELD)
        return FlowOutputs(dict(run.output) if isinstance(run.output, dict) else {})


def _input(config: TriggerInput) -> FlowInput:
    return msgspec.convert(
        {"identifier": config.identify, "name": config.name, "type": config.type}, FlowInput
    )
