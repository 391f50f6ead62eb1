"""`output`: sets the response of the flow."""

from typing import Annotated, Any

import msgspec

from services.workflow.nodes.base import NodeContext, PaletteGroup, Step
from services.workflow.nodes.parameters import Parameters, VariableName, parameter_meta

MAX_OUTPUTS = 100


class OutputParameters(Parameters):
    """The response of the flow."""

    output_variables: Annotated[
        dict[VariableName, Any],
        parameter_meta(
            "Output variables",
            "Values or references, by name",
            ui="paramAssignInput",
            ui_group="Output Variables",
            max_length=MAX_OUTPUTS,
        ),
    ] = msgspec.field(default_factory=dict)


class Output(Step[OutputParameters]):
    """Returns its parameters as the response of the flow.

    The response does not change if other nodes finish later.
    """

    name = "output"
    title = "Output"
    description = "Sets the response to a call of the flow as a service"
    group = PaletteGroup.EXTERNAL
    repeatable = True
    answers = True

    def is_quick(self, parameters: OutputParameters) -> bool:
        """Return True, because the node waits for nothing."""
        return True

    is_instant = is_quick

    async def run(
        self, context: NodeContext, parameters: OutputParameters, body: Any
    ) -> dict[str, Any]:
        """Return the values by name."""
        values: dict[str, Any] = context.resolve_references(parameters.output_variables)
        return values
