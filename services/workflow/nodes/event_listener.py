"""`eventListener`: a value of one of the entities came."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from services.workflow.nodes.base import Entry
from services.workflow.nodes.parameters import (
    LONGEST_KEY,
    EntityKey,
    Fault,
    Parameters,
    parameter,
    read_map,
)

MOST_ENTITIES = 1000
MOST_PATTERNS = 20
"""Keys with `*` of one listener: each of them is looked at apart."""


class EventListenerParameters(Parameters):
    """What is listened to."""

    entities: Annotated[
        Annotated[list[EntityKey], msgspec.Meta(max_length=MOST_ENTITIES)] | str,
        parameter(
            "Entities",
            "Keys of entities; * stands for any characters",
            ui="entityMultipleSelect",
            ui_group="Entity Listening Setting",
        ),
    ]
    """A list, or a text with commas between the keys."""

    def entity_keys(self) -> list[str]:
        """The keys, each once."""
        keys = self.entities.split(",") if isinstance(self.entities, str) else self.entities
        return list(dict.fromkeys(key.strip() for key in keys if key.strip()))

    def faults(self) -> Iterable[Fault]:
        """None, too many, or a pattern that says nothing."""
        keys = self.entity_keys()
        if not keys:
            yield Fault("entities", "has no entity; name at least one")
        if len(keys) > MOST_ENTITIES:
            yield Fault("entities", f"has {len(keys)} keys, at most {MOST_ENTITIES}")
        patterns = [key for key in keys if "*" in key]
        if len(patterns) > MOST_PATTERNS:
            yield Fault("entities", f"has {len(patterns)} keys with *, at most {MOST_PATTERNS}")
        for key in keys:
            if len(key) > LONGEST_KEY:
                yield Fault("entities", f"{key[:50]}… has more than {LONGEST_KEY} characters")
            if not key.strip("*"):
                yield Fault("entities", "* alone is every entity; name what the keys begin with")


class EventListener(Entry[EventListenerParameters]):
    """Begins a flow with the values that came, by key; of those it listens to only."""

    name = "eventListener"
    title = "Event Listener"
    description = "Runs the flow when values of entities come, as when a device reports"

    def entered(self, parameters: EventListenerParameters, given: Any) -> Any:
        """The values by key."""
        return read_map(given, " of values by entity key")
