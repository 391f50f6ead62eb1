"""`entityAssigner`: sets properties of entities."""

from collections.abc import Iterable
from typing import Annotated, Any

from libs.common.things import is_custom
from services.workflow.errors import NodeFailed
from services.workflow.expressions.references import is_constant
from services.workflow.nodes.base import EntityStep, NodeContext
from services.workflow.nodes.parameters import (
    MOST_ENTITIES,
    EntityKey,
    Fault,
    Parameters,
    parameter,
)


class EntityAssignerParameters(Parameters):
    """The properties to set."""

    exchange_payload: Annotated[
        dict[EntityKey, Any],
        parameter(
            "Assignments",
            "Values or references, by the keys of properties",
            ui="entityAssignSelect",
            min_length=1,
            max_length=MOST_ENTITIES,
        ),
    ]

    def entity_keys(self) -> Iterable[str]:
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

    async def check_constants(
        self, tenant: str, parameters: EntityAssignerParameters
    ) -> Iterable[Fault]:
        """Return a fault if the properties reject the constants."""
        payload = parameters.exchange_payload
        constants = {key: value for key, value in payload.items() if is_constant(value)}
        if not constants:
            return ()
        setting = self._entities.update(tenant, constants, 0, dry_run=True)
        return await self.collect_faults("exchangePayload", setting)

    def quick(self, parameters: EntityAssignerParameters) -> bool:
        """Return whether all are custom entities, as devices take time to respond."""
        return all(map(is_custom, parameters.exchange_payload))

    async def run(
        self, context: NodeContext, parameters: EntityAssignerParameters, body: Any
    ) -> dict[str, Any]:
        """Set the properties; a dry run validates known values only."""
        payload = parameters.exchange_payload
        exchange: dict[str, Any] = context.resolve(payload)
        if guessed := context.find_sampled(payload):
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
