"""`serviceInvocation`: calls a service of a device, an integration or a flow."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from services.workflow.expressions.references import is_constant
from services.workflow.nodes.base import EntityStep, NodeContext, Supposed
from services.workflow.nodes.parameters import (
    MOST_ENTITIES,
    EntityKey,
    Fault,
    Output,
    Parameters,
    check_outputs,
    declared_outputs,
    duplicate_faults,
    parameter,
    sample,
)

JUDGED = 5.0
"""Seconds within which the inputs of a call are judged."""


class ServiceCall(msgspec.Struct, rename="camel"):
    """Which service, and its inputs by their keys."""

    service_entity: EntityKey
    service_params: Annotated[dict[EntityKey, Any], msgspec.Meta(max_length=MOST_ENTITIES)] = {}


class ServiceInvocationParameters(Parameters):
    """What to call."""

    service_invocation_setting: Annotated[
        ServiceCall,
        parameter("Service", "The service and its inputs", ui="serviceEntitySetting"),
    ]
    payload: Annotated[
        list[Output], declared_outputs("What the service answers", MOST_ENTITIES)
    ] = msgspec.field(default_factory=list)

    def faults(self) -> Iterable[Fault]:
        """Outputs that are declared twice."""
        return duplicate_faults("payload", (one.name for one in self.payload))

    def entity_keys(self) -> Iterable[str]:
        """The service and its inputs."""
        yield self.service_invocation_setting.service_entity
        yield from self.service_invocation_setting.service_params


class ServiceInvocation(EntityStep[ServiceInvocationParameters]):
    """Calls a service and puts out what it answers."""

    name = "serviceInvocation"
    title = "Service Invocation"
    description = "Calls a service and waits for its answer"
    commands = True

    async def judge(self, tenant: str, parameters: ServiceInvocationParameters) -> Iterable[Fault]:
        """Whether the service takes its inputs, when all of them are constants."""
        setting = parameters.service_invocation_setting
        if not is_constant(setting.service_params):
            return ()
        exchange = setting.service_params or {setting.service_entity: {}}
        calling = self._entities.call(tenant, exchange, 0, JUDGED, dry_run=True)
        return await self.faults_of("serviceInvocationSetting", calling)

    async def run(
        self, context: NodeContext, parameters: ServiceInvocationParameters, body: Any
    ) -> dict[str, Any] | Supposed:
        """Call it. A dry run judges the inputs, when they are known, and supposes an answer."""
        setting = parameters.service_invocation_setting
        inputs: dict[str, Any] = context.resolve(setting.service_params)
        supposed = Supposed({one.name: sample(one.type) for one in parameters.payload})
        if context.guessed(setting.service_params):
            await self.latest(context, [setting.service_entity, *inputs])
            return supposed
        exchange = inputs or {setting.service_entity: {}}
        answer = await self._entities.call(
            context.tenant,
            exchange,
            context.hops + 1,
            context.seconds_left,
            dry_run=context.dry_run,
        )
        if context.dry_run:
            return supposed
        check_outputs(parameters.payload, answer)
        return dict(answer)
