"""`output`: what the flow answers to who called it."""

from typing import Annotated, Any

import msgspec

from services.workflow.nodes.base import Group, NodeContext, Step
from services.workflow.nodes.parameters import Parameters, VariableName, parameter

MOST_OUTPUTS = 100


class OutputParameters(Parameters):
    """The answer."""

    output_variables: Annotated[
        dict[VariableName, Any],
        parameter(
            "Output variables",
            "Values, or references to some, by name",
            ui="paramAssignInput",
            ui_group="Output Variables",
            max_length=MOST_OUTPUTS,
        ),
    ] = msgspec.field(default_factory=dict)


class Output(Step[OutputParameters]):
    """Puts out its parameters; that is the answer of the flow, whatever finishes later."""

    name = "output"
    title = "Output"
    description = "Answers whoever called the flow"
    group = Group.EXTERNAL
    repeatable = True
    answers = True

    def quick(self, parameters: OutputParameters) -> bool:
        """It waits for nobody."""
        return True

    instant = quick

    async def run(
        self, context: NodeContext, parameters: OutputParameters, body: Any
    ) -> dict[str, Any]:
        """The values by name."""
        found: dict[str, Any] = context.resolve(parameters.output_variables)
        return found
