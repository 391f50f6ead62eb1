"""`trigger`: the flow is a service, which people and other flows call."""

import re
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from services.workflow.nodes.base import Entry
from services.workflow.nodes.parameters import (
    DeclaredType,
    Fault,
    Parameters,
    VariableName,
    duplicate_faults,
    parameter,
    read_input,
    read_map,
)

MOST_INPUTS = 100
_IDENTIFIER = re.compile(r"[A-Za-z0-9_@#$-]{1,50}").fullmatch


class TriggerInput(msgspec.Struct, rename="camel"):
    """One input of the service."""

    identify: VariableName
    name: VariableName
    type: DeclaredType = "STRING"


class TriggerParameters(Parameters):
    """What the service takes."""

    entity_configs: Annotated[
        list[TriggerInput],
        parameter(
            "Inputs",
            "What the service is called with; nodes refer to it by its identifier",
            ui="paramDefineInput",
            ui_group="Input Variables",
            max_length=MOST_INPUTS,
        ),
    ] = msgspec.field(default_factory=list)

    def faults(self) -> Iterable[Fault]:
        """Names, and types that no entity has."""
        yield from duplicate_faults("entityConfigs", (one.identify for one in self.entity_configs))
        for place, one in enumerate(self.entity_configs):
            if not _IDENTIFIER(one.identify):
                text = "must be letters, digits and _ @ # $ -"
                yield Fault(f"entityConfigs[{place}].identify", text)
            if one.type == "OTHER":
                text = "must be LONG, DOUBLE, BOOLEAN or STRING"
                yield Fault(f"entityConfigs[{place}].type", text)


class Trigger(Entry[TriggerParameters]):
    """Begins a flow with what its service was called with."""

    name = "trigger"
    title = "Trigger"
    description = "Runs the flow when its service is called"

    def entered(self, parameters: TriggerParameters, given: Any) -> dict[str, Any]:
        """The inputs by identifier; editors test with names instead, which are taken, too."""
        given, found = read_map(given, " of inputs by identifier"), {}
        for one in parameters.entity_configs:
            for name in (one.identify, one.name):
                if name in given:
                    found[one.identify] = read_input(one.type, one.identify, given[name])
                    break
        return found
