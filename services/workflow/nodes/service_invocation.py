"""`serviceInvocation`: calls a service of a device, an integration or a flow."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from services.workflow.expressions.references import is_constant
from services.workflow.nodes.base import EntityStep, NodeContext, Sample
from services.workflow.nodes.parameters import (
    MOST_ENTITIES,
    EntityKey,
    Fault,
    Output,
    Parameters,
    check_outputs,
    declared_outputs,
    find_duplicates,
    parameter,
    sample_value,
)

CHECK_SECONDS = 5.0
"""Timeout for validating the inputs of a call, in seconds."""


class ServiceCall(msgspec.Struct, rename="camel"):
    """A service, and its inputs by key."""

    service_entity: EntityKey
    service_params: Annotated[dict[EntityKey, Any], msgspec.Meta(max_length=MOST_ENTITIES)] = {}


class ServiceInvocationParameters(Parameters):
    """The service to call."""

    service_invocation_setting: Annotated[
        ServiceCall,
        parameter("Service", "The service and its inputs", ui="serviceEntitySetting"),
    ]
    payload: Annotated[list[Output], declared_outputs("Outputs of the service", MOST_ENTITIES)] = (
        msgspec.field(default_factory=list)
    )

    def faults(self) -> Iterable[Fault]:
        """Return duplicate outputs."""
        return find_duplicates("payload", (output.name for output in self.payload))

    def entity_keys(self) -> Iterable[str]:
        """Yield the service and its inputs."""
        yield self.service_invocation_setting.service_entity
        yield from self.service_invocation_setting.service_params


class ServiceInvocation(EntityStep[ServiceInvocationParameters]):
    """Calls a service and returns its response."""

    name = "serviceInvocation"
    title = "Service Invocation"
    description = "Calls a service and waits for its response"
    commands = True

    async def check_constants(
        self, tenant: str, parameters: ServiceInvocationParameters
    ) -> Iterable[Fault]:
        """Return a fault if the service rejects its inputs, if all are constants."""
        setting = parameters.service_invocation_setting
        if not is_constant(setting.service_params):
            return ()
        exchange = setting.service_params or {setting.service_entity: {}}
        calling = self._entities.call_services(tenant, exchange, 0, CHECK_SECONDS, dry_run=True)
        return await self.collect_faults("serviceInvocationSetting", calling)

    async def run(
        self, context: NodeContext, parameters: ServiceInvocationParameters, body: Any
    ) -> dict[str, Any] | Sample:
        """Call the service; a dry run validates known inputs and returns a sample."""
        setting = parameters.service_invocation_setting
        inputs: dict[str, Any] = context.resolve(setting.service_params)
        supposed = Sample({output.name: sample_value(output.type) for output in parameters.payload})
        if context.find_sampled(setting.service_params):
            await self.read_latest(context, [setting.service_entity, *inputs])
            return supposed
        exchange = inputs or {setting.service_entity: {}}
        answer = await self._entities.call_services(
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
