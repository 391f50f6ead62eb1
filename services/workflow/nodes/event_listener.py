"""`eventListener`: starts a flow on new values of entities."""

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
"""Maximum keys with `*` of a listener, because each one is matched separately."""


class EventListenerParameters(Parameters):
    """The entities to listen to."""

    entities: Annotated[
        Annotated[list[EntityKey], msgspec.Meta(max_length=MOST_ENTITIES)] | str,
        parameter(
            "Entities",
            "Keys of entities; * matches any characters",
            ui="entityMultipleSelect",
            ui_group="Entity Listening Setting",
        ),
    ]
    """A list, or a text with comma-separated keys."""

    def entity_keys(self) -> list[str]:
        """Return the distinct keys."""
        keys = self.entities.split(",") if isinstance(self.entities, str) else self.entities
        return list(dict.fromkeys(key.strip() for key in keys if key.strip()))

    def faults(self) -> Iterable[Fault]:
        """Yield missing or too many keys, and patterns that match everything."""
        keys = self.entity_keys()
        if not keys:
            yield Fault("entities", "must have at least one key")
        if len(keys) > MOST_ENTITIES:
            yield Fault("entities", f"must have at most {MOST_ENTITIES} keys. Got {len(keys)}.")
        patterns = [key for key in keys if "*" in key]
        if len(patterns) > MOST_PATTERNS:
            text = f"must have at most {MOST_PATTERNS} keys with *. Got {len(patterns)}."
            yield Fault("entities", text)
        for key in keys:
            if len(key) > LONGEST_KEY:
                yield Fault("entities", f"{key[:50]}… must have at most {LONGEST_KEY} characters")
            if not key.strip("*"):
                yield Fault("entities", "* alone matches all entities; add a prefix")


class EventListener(Entry[EventListenerParameters]):
    """Starts a flow with the new values of its entities, by key."""

    name = "eventListener"
    title = "Event Listener"
    description = "Runs the flow on new values of entities, for example when a device reports"

    def entered(self, parameters: EventListenerParameters, given: Any) -> Any:
        """Return the values by key."""
        return read_map(given, " of values by entity key")
