"""Filters of names: the same of entities in memory and of devices in MongoDB."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from libs.common.integrations.client import ShownIntegration
from libs.common.store.mongo import containing, pattern_of
from services.device.members.entity import EntityThing
from services.device.things.visibility import Condition

FIELD = "entity_filter"
"""Where an advanced search names its filters."""
NEGATED = {"NE": "EQ", "NOT_CONTAINS": "CONTAINS", "IS_NOT_EMPTY": "IS_EMPTY"}
"""Operators that are others turned around."""
_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda name, text: text.lower() in name.lower(),
    "EQ": lambda name, text: name == text,
    "START_WITH": lambda name, text: name.lower().startswith(text.lower()),
    "END_WITH": lambda name, text: name.lower().endswith(text.lower()),
    "IS_EMPTY": lambda name, _: not name,
}


def text_fits(operator: str, text: str, name: str | None) -> bool:
    """Whether a name meets an operator; what has none is what an empty name is."""
    negated = operator in NEGATED
    return _TESTS[NEGATED.get(operator, operator)](name or "", text) != negated


def text_condition(field_name: str, operator: str, text: str) -> Condition:
    """The same of a stored field."""
    conditions: dict[str, Any] = {
        "CONTAINS": containing(text, FIELD),
        "EQ": {"$eq": text},
        "START_WITH": {"$regex": f"^{pattern_of(text, FIELD)}", "$options": "i"},
        "END_WITH": {"$regex": f"{pattern_of(text, FIELD)}$", "$options": "i"},
    }
    positive = conditions[NEGATED.get(operator, operator)]
    return {field_name: {"$not": positive} if operator in NEGATED else positive}


@dataclass
class TextFilter:
    """Filters of things: as conditions on devices, and of any thing."""

    conditions: list[Condition] = field(default_factory=list)
    tests: list[Callable[[EntityThing], bool]] = field(default_factory=list)

    @classmethod
    def of_source(
        cls, name: str | None, integrations: Mapping[str, ShownIntegration]
    ) -> "TextFilter":
        """Things whose device or integration has a name with this part; all for none."""
        found = cls()
        if name:
            named = integrations_named("CONTAINS", name, integrations)
            found.conditions.append(
                {
                    "$or": [
                        {"name": containing(name, "entity_source_name")},
                        {"integration": {"$in": named}},
                    ]
                }
            )
            found.tests.append(
                lambda thing: thing.integration in named or text_fits("CONTAINS", name, thing.name)
            )
        return found

    def fits(self, thing: EntityThing) -> bool:
        """Whether a thing meets all."""
        return all(test(thing) for test in self.tests)


def integrations_named(
    operator: str, text: str, integrations: Mapping[str, ShownIntegration]
) -> Sequence[str]:
    """The integrations whose names meet an operator."""
    return sorted(
        one for one, known in integrations.items() if text_fits(operator, text, known.name)
    )
