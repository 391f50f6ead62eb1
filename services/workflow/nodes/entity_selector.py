"""`entitySelector`: reads the latest values of entities."""

from collections.abc import Iterable
from typing import Annotated, Any

from services.workflow.nodes.base import EntityStep, NodeContext
from services.workflow.nodes.parameters import MOST_ENTITIES, EntityKey, Parameters, parameter


class EntitySelectorParameters(Parameters):
    """The entities to read."""

    entities: Annotated[
        list[EntityKey],
        parameter(
            "Entities",
            "Keys of the entities to read",
            ui="entityMultipleSelect",
            min_length=1,
            max_length=MOST_ENTITIES,
        ),
    ]

    def entity_keys(self) -> Iterable[str]:
        """Return the selected keys."""
        return self.entities


class EntitySelector(EntityStep[EntitySelectorParameters]):
    """Returns `{key: latest value}`."""

    name = "entitySelector"
    title = "Entity Selector"
    description = "Reads the latest values of entities"
    repeatable = True

    async def run(
        self, context: NodeContext, parameters: EntitySelectorParameters, body: Any
    ) -> dict[str, Any]:
        """Return values by key, null without a value; raise `NodeFailed` if missing."""
        return await self.read_latest(context, parameters.entities)
