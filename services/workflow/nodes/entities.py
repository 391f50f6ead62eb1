"""Nodes for entities: `entitySelector`, `entityAssigner`, `serviceInvocation`."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from libs.common.things import is_custom_key
from services.workflow.errors import NodeFailed
from services.workflow.expressions.references import is_constant
from services.workflow.nodes.base import EntityStep, NodeContext, SampleOutput
from services.workflow.nodes.parameters import (
    MAX_ENTITIES,
    EntityKey,
    Output,
    ParameterFault,
    Parameters,
    check_output_types,
    create_sample_value,
    find_duplicate_names,
    outputs_meta,
    parameter_meta,
)


class EntitySelectorParameters(Parameters):
    """The entities to read."""

    entities: Annotated[
        list[EntityKey],
        parameter_meta(
            "Entities",
            "Keys of the entities to read",
            ui="entityMultipleSelect",
            min_length=1,
            max_length=MAX_ENTITIES,
        ),
    ]

    def list_entity_keys(self) -> Iterable[str]:
        """Return the selected keys."""
        return self.entities


class EntitySelector(EntityStep[EntitySelectorParameters]):
    """Reads latest values of entities. The output is `{key: value}`."""

    name = "entitySelector"
    title = "Entity Selector"
    description = "Reads the latest values of entities"
    repeatable = True

    async def run(
        self, context: NodeContext, parameters: EntitySelectorParameters, body: Any
    ) -> dict[str, Any]:
        """Return values by key, None for an entity without a value.

        Raises `NodeFailed` if an entity does not exist.
        """
        return await self.read_latest(context, parameters.entities)


class EntityAssignerParameters(Parameters):
    """The properties to set."""

    exchange_payload: Annotated[
        dict[EntityKey, Any],
        parameter_meta(
            "Assignments",
            "Values or references, by the keys of properties",
            ui="entityAssignSelect",
            min_length=1,
            max_length=MAX_ENTITIES,
        ),
    ]

    def list_entity_keys(self) -> Iterable[str]:
        """Return the keys to set."""
        return self.exchange_payload


class EntityAssigner(EntityStep[EntityAssignerParameters]):
    """Sets properties. The output has the set values, null if write-only.

    Setting a property of a device waits for its response; other properties are set immediately.
    Setting the same values again changes nothing, so an interrupted run may restart here.
    """

    name = "entityAssigner"
    title = "Entity Assigner"
    description = "Sets properties of entities, for example to switch a light"
    commands = True
    repeatable = True

    async def find_constant_faults(
        self, tenant: str, parameters: EntityAssignerParameters
    ) -> Iterable[ParameterFault]:
        """Return a fault if the properties reject the constants."""
        payload = parameters.exchange_payload
        constants = {key: value for key, value in payload.items() if is_constant(value)}
        if not constants:
            return ()
        setting = self._entities.update(tenant, constants, 0, dry_run=True)
        return await self.find_dry_run_faults("exchangePayload", setting)

    def is_quick(self, parameters: EntityAssignerParameters) -> bool:
        """Return whether it sets only custom entities: devices take time to respond."""
        return all(map(is_custom_key, parameters.exchange_payload))

    async def run(
        self, context: NodeContext, parameters: EntityAssignerParameters, body: Any
    ) -> dict[str, Any]:
        """Set the properties; a dry run validates known values only."""
        payload = parameters.exchange_payload
        exchange: dict[str, Any] = context.resolve_references(payload)
        if guessed := context.find_names_with_samples(payload):
            await self.read_latest(context, list(payload))
            exchange = {key: value for key, value in exchange.items() if key not in guessed}
        if not exchange:
            return {}
        outcome = await self._entities.update(
            context.tenant, exchange, context.hops + 1, dry_run=context.dry_run
        )
        if not outcome.keys:
            raise NodeFailed("no entity is a writable property")
        hidden = set(outcome.write_only)
        return {key: None if key in hidden else exchange[key] for key in outcome.keys}


VALIDATION_TIMEOUT_SECONDS = 5.0
"""Timeout for validating the inputs of a call, in seconds."""


class ServiceCall(msgspec.Struct, rename="camel"):
    """A service, and its inputs by key."""

    service_entity: EntityKey
    """Key of the service."""
    service_params: Annotated[dict[EntityKey, Any], msgspec.Meta(max_length=MAX_ENTITIES)] = {}
    """Values or references, by the keys of the service's inputs."""


class ServiceInvocationParameters(Parameters):
    """The service to call."""

    service_invocation_setting: Annotated[
        ServiceCall,
        parameter_meta("Service", "The service and its inputs", ui="serviceEntitySetting"),
    ]
    payload: Annotated[list[Output], outputs_meta("Outputs of the service", MAX_ENTITIES)] = (
        msgspec.field(default_factory=list)
    )

    def find_faults(self) -> Iterable[ParameterFault]:
        """Return duplicate outputs."""
        return find_duplicate_names("payload", (output.name for output in self.payload))

    def list_entity_keys(self) -> Iterable[str]:
        """Yield the service and its inputs."""
        yield self.service_invocation_setting.service_entity
        yield from self.service_invocation_setting.service_params


class ServiceInvocation(EntityStep[ServiceInvocationParameters]):
    """Calls a service and returns its response."""

    name = "serviceInvocation"
    title = "Service Invocation"
    description = "Calls a service and waits up to 10 s for its response"
    commands = True

    async def find_constant_faults(
        self, tenant: str, parameters: ServiceInvocationParameters
    ) -> Iterable[ParameterFault]:
        """Return a fault if all inputs are constants and the service rejects them."""
        setting = parameters.service_invocation_setting
        if not is_constant(setting.service_params):
            return ()
        exchange = setting.service_params or {setting.service_entity: {}}
        calling = self._entities.call_services(
            tenant, exchange, 0, VALIDATION_TIMEOUT_SECONDS, dry_run=True
        )
        return await self.find_dry_run_faults("serviceInvocationSetting", calling)

    async def run(
        self, context: NodeContext, parameters: ServiceInvocationParameters, body: Any
    ) -> dict[str, Any] | SampleOutput:
        """Call the service; a dry run validates known inputs and returns a sample."""
        setting = parameters.service_invocation_setting
        inputs: dict[str, Any] = context.resolve_references(setting.service_params)
        sample = SampleOutput(
            {output.name: create_sample_value(output.type) for output in parameters.payload}
        )
        if context.find_names_with_samples(setting.service_params):
            await self.read_latest(context, [setting.service_entity, *inputs])
            return sample
        exchange = inputs or {setting.service_entity: {}}
        answer = await self._entities.call_services(
            context.tenant,
            exchange,
            context.hops + 1,
            context.seconds_left,
            dry_run=context.dry_run,
        )
        if context.dry_run:
            return sample
        check_output_types(parameters.payload, answer)
        return dict(answer)
