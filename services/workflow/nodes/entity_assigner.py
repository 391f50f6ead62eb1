"""`entityAssigner`: sets properties."""

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
    """What is set to what."""

    exchange_payload: Annotated[
        dict[EntityKey, Any],
        parameter(
            "Assignments",
            "Values, or references to some, by the keys of properties",
            ui="entityAssignSelect",
            min_length=1,
            max_length=MOST_ENTITIES,
        ),
    ]

    def entity_keys(self) -> Iterable[str]:
        """All that are set."""
        return self.exchange_payload


class EntityAssigner(EntityStep[EntityAssignerParameters]):
    """Sets properties and puts out what was set; null for one that is write-only.

    A device takes its values on when it answers; other things have them at once. Setting the
    same values again changes nothing, so a run that was interrupted here may begin anew.
    """

    name = "entityAssigner"
    title = "Entity Assigner"
    description = "Sets properties of entities, as to switch a light"
    commands = True
    repeatable = True

    async def judge(self, tenant: str, parameters: EntityAssignerParameters) -> Iterable[Fault]:
        """Whether the properties that are set to constants take them."""
        payload = parameters.exchange_payload
        constants = {key: value for key, value in payload.items() if is_constant(value)}
        if not constants:
            return ()
        setting = self._entities.update(tenant, constants, 0, dry_run=True)
        return await self.faults_of("exchangePayload", setting)

    def quick(self, parameters: EntityAssignerParameters) -> bool:
        """Whether all are custom entities: devices and integrations take their time."""
        return all(map(is_custom, parameters.exchange_payload))

    async def run(
        self, context: NodeContext, parameters: EntityAssignerParameters, body: Any
    ) -> dict[str, Any]:
        """Set them; a dry run judges them, those that are known."""
        payload = parameters.exchange_payload
        exchange: dict[str, Any] = context.resolve(payload)
        if guessed := context.guessed(payload):
            await self.latest(context, list(payload))
            exchange = {key: value for key, value in exchange.items() if key not in guessed}
        if not exchange:
            return {}
        outcome = await self._entities.update(
            context.tenant, exchange, context.hops + 1, dry_run=context.dry_run
        )
        if not outcome.keys:
            raise NodeFailed("none of the entities is a property that can be set")
        hidden = set(outcome.write_only)
        return {key: None if key in hidden else exchange[key] for key in outcome.keys}
