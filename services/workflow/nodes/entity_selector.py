"""`entitySelector`: latest values of entities."""

from collections.abc import Iterable
from typing import Annotated, Any

from services.workflow.nodes.base import EntityStep, NodeContext
from services.workflow.nodes.parameters import MOST_ENTITIES, EntityKey, Parameters, parameter


class EntitySelectorParameters(Parameters):
    """Which entities."""

    entities: Annotated[
        list[EntityKey],
        parameter(
            "Entities",
            "Keys of the entities whose latest values are wanted",
            ui="entityMultipleSelect",
            min_length=1,
            max_length=MOST_ENTITIES,
        ),
    ]

    def entity_keys(self) -> Iterable[str]:
        """All that are selected."""
        return self.entities


class EntitySelector(EntityStep[EntitySelectorParameters]):
    """Puts out `{key: latest value}`."""

    name = "entitySelector"
    title = "Entity Selector"
    description = "Reads the latest values of entities"
    repeatable = True

    async def run(
        self, context: NodeContext, parameters: EntitySelectorParameters, body: Any
    ) -> dict[str, Any]:
        """The values by key; one without a value is null. Fails for one that is not there."""
        return await self.latest(context, parameters.entities)
