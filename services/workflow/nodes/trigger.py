"""`trigger`: makes the flow a service that users and other flows call."""

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
    find_duplicates,
    parameter,
    read_input,
    read_map,
)

MOST_INPUTS = 100
_IDENTIFIER = re.compile(r"[A-Za-z0-9_@#$-]{1,50}").fullmatch


class TriggerInput(msgspec.Struct, rename="camel"):
    """An input of the service."""

    identify: VariableName
    name: VariableName
    type: DeclaredType = "STRING"


class TriggerParameters(Parameters):
    """The inputs of the service."""

    entity_configs: Annotated[
        list[TriggerInput],
        parameter(
            "Inputs",
            "Inputs of the service; nodes refer to them by identifier",
            ui="paramDefineInput",
            ui_group="Input Variables",
            max_length=MOST_INPUTS,
        ),
    ] = msgspec.field(default_factory=list)

    def faults(self) -> Iterable[Fault]:
        """Yield invalid names and types of inputs."""
        yield from find_duplicates("entityConfigs", (each.identify for each in self.entity_configs))
        for place, config in enumerate(self.entity_configs):
            if not _IDENTIFIER(config.identify):
                text = "must have only letters, digits and _ @ # $ -"
                yield Fault(f"entityConfigs[{place}].identify", text)
            if config.type == "OTHER":
                text = "must be LONG, DOUBLE, BOOLEAN or STRING"
                yield Fault(f"entityConfigs[{place}].type", text)


class Trigger(Entry[TriggerParameters]):
    """Starts a flow with the inputs of a service call."""

    name = "trigger"
    title = "Trigger"
    description = "Runs the flow when its service is called"

    def entered(self, parameters: TriggerParameters, given: Any) -> dict[str, Any]:
        """Return inputs by identifier; names are accepted too, as editors use them."""
        given, found = read_map(given, " of inputs by identifier"), {}
        for config in parameters.entity_configs:
            for name in (config.identify, config.name):
                if name in given:
                    found[config.identify] = read_input(config.type, config.identify, given[name])
                    break
        return found
