"""`serviceInvocation`: calls a service of a device, an integration or a flow."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from services.workflow.entities import Entities
from services.workflow.expressions.references import is_constant
from services.workflow.nodes.base import Group, NodeContext, Step, Supposed
from services.workflow.nodes.entity_selector import MOST_ENTITIES, latest, refusal_of
from services.workflow.nodes.parameters import (
    EntityKey,
    Fault,
    Output,
    Parameters,
    check_outputs,
    named_twice,
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
        list[Output],
        parameter(
            "Outputs",
            "What the service answers",
            ui="paramDefineInput",
            output=True,
            max_length=MOST_ENTITIES,
        ),
    ] = msgspec.field(default_factory=list)

    def faults(self) -> Iterable[Fault]:
        """Outputs that are declared twice."""
        return named_twice("payload", (one.name for one in self.payload))

    def entity_keys(self) -> Iterable[str]:
        """The service and its inputs."""
        yield self.service_invocation_setting.service_entity
        yield from self.service_invocation_setting.service_params


class ServiceInvocation(Step[ServiceInvocationParameters]):
    """Calls a service and puts out what it answers."""

    name = "serviceInvocation"
    title = "Service Invocation"
    description = "Calls a service and waits for its answer"
    group = Group.ACTION
    testable = False
    commands = True

    def __init__(self, entities: Entities) -> None:
        self._entities = entities

    async def judge(self, tenant: str, parameters: ServiceInvocationParameters) -> Iterable[Fault]:
        """Whether the service takes its inputs, when all of them are constants."""
        setting = parameters.service_invocation_setting
        if not is_constant(setting.service_params):
            return ()
        exchange = setting.service_params or {setting.service_entity: {}}
        calling = self._entities.call(tenant, exchange, 0, JUDGED, dry_run=True)
        return await refusal_of("serviceInvocationSetting", calling)

    async def run(
        self, context: NodeContext, parameters: ServiceInvocationParameters, body: Any
    ) -> dict[str, Any] | Supposed:
        """Call it. A dry run judges the inputs, when they are known, and supposes an answer."""
        setting = parameters.service_invocation_setting
        inputs: dict[str, Any] = context.resolve(setting.service_params)
        supposed = Supposed({one.name: sample(one.type) for one in parameters.payload})
        if context.guessed(setting.service_params):
            await latest(self._entities, context, [setting.service_entity, *inputs])
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
