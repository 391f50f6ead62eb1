"""`entitySelector`: latest values of entities."""

import logging
from collections.abc import Awaitable, Iterable
from typing import Annotated, Any

from libs.common.errors import InvalidInput, ThingwayError
from services.workflow.entities import Entities
from services.workflow.errors import NodeFailed
from services.workflow.nodes.base import Group, NodeContext, Step
from services.workflow.nodes.parameters import EntityKey, Fault, Parameters, parameter

log = logging.getLogger(__name__)

MOST_ENTITIES = 1000


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


class EntitySelector(Step[EntitySelectorParameters]):
    """Puts out `{key: latest value}`."""

    name = "entitySelector"
    title = "Entity Selector"
    description = "Reads the latest values of entities"
    group = Group.ACTION
    testable = False
    repeatable = True

    def __init__(self, entities: Entities) -> None:
        self._entities = entities

    async def run(
        self, context: NodeContext, parameters: EntitySelectorParameters, body: Any
    ) -> dict[str, Any]:
        """The values by key; one without a value is null. Fails for one that is not there."""
        return await latest(self._entities, context, parameters.entities)


async def latest(entities: Entities, context: NodeContext, keys: list[str]) -> dict[str, Any]:
    """Return latest values by key, null for a write-only one, which the log of the run notes.

    Raises `NodeFailed` naming the entities that do not exist.
    """
    found = await entities.values(context.tenant, keys)
    missing = [key for key in keys if key not in found.values]
    if missing:
        raise NodeFailed(f"there is no entity {', '.join(missing[:5])}")
    if found.write_only:
        listed = ", ".join(found.write_only[:5])
        context.notes.append(f"{listed}: write-only, so that its value cannot be read")
    return {key: found.values[key] for key in keys}


async def refusal_of(field: str, asking: Awaitable[Any]) -> list[Fault]:
    """What a dry run is refused for, as a fault of a parameter.

    Only what is wrong with values: what is not there, or does not answer, may be by the time of
    a run.
    """
    try:
        await asking
    except InvalidInput as error:
        return [Fault(field, error.message)]
    except ThingwayError as error:
        log.info("constants of a flow are not judged: %s", error)
    return []
