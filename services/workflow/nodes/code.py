"""`code`: runs JavaScript or Python between two nodes."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

import msgspec

from services.workflow.nodes.base import NodeContext, PaletteGroup, Step
from services.workflow.nodes.parameters import (
    CodeParameter,
    Output,
    ParameterFault,
    Parameters,
    check_output_types,
    find_duplicate_names,
    outputs_meta,
    parameter_meta,
)
from services.workflow.sandbox.runner import (
    LANGUAGES_BY_NAME,
    Sandbox,
    describe_unsupported_language,
)

MAX_CODE_CHARACTERS = 64_000
MAX_ARGUMENTS = 100
CONTEXT_VARIABLES = ("body", "properties")
"""Variables of all code: the input of the node, and the outputs so far by node."""
_match_variable_name = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}").fullmatch


class Expression(msgspec.Struct, rename="camel"):
    """A piece of code and its language."""

    expression: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CODE_CHARACTERS)]
    """The code."""
    language: Annotated[str, msgspec.Meta(description="`js` or `python`")] = "js"


class CodeParameters(Parameters):
    """The code to run."""

    verbatim: ClassVar[frozenset[str]] = frozenset({"expression"})

    expression: Annotated[
        Expression,
        parameter_meta(
            "Code",
            "JavaScript: the body of a function that returns its output. Python: def main(), or "
            "statements, the last of which is the output. Variables are the inputs, `body` (the "
            "input of the node) and `properties` (outputs by node id).",
            ui="codeEditor",
        ),
    ]
    input_arguments: Annotated[
        dict[str, Any],
        parameter_meta(
            "Inputs", "Variables of the code", ui="paramAssignInput", max_length=MAX_ARGUMENTS
        ),
    ] = msgspec.field(default_factory=dict)
    payload: Annotated[
        list[Output], outputs_meta("Keys of the map that the code returns", MAX_ARGUMENTS)
    ] = msgspec.field(default_factory=list)

    def find_faults(self) -> Iterable[ParameterFault]:
        """Yield unsupported languages, invalid names and duplicate outputs."""
        if self.expression.language not in LANGUAGES_BY_NAME:
            text = describe_unsupported_language(self.expression.language)
            yield ParameterFault("expression.language", text)
        for name in self.input_arguments:
            if not _match_variable_name(name):
                text = "must have at most 50 letters, digits and _, and not start with a digit"
                yield ParameterFault(f"inputArguments.{name:.60}", text)
        yield from find_duplicate_names("payload", (output.name for output in self.payload))

    def list_code(self) -> Iterable[CodeParameter]:
        """Yield the code with its variables."""
        names = [*self.input_arguments, *CONTEXT_VARIABLES]
        code = self.expression
        yield CodeParameter(
            "expression.expression", code.language, code.expression, list(dict.fromkeys(names))
        )


class CodeNode(Step[CodeParameters]):
    """Runs code in the sandbox. The value of the code is the output."""

    name = "code"
    title = "Code"
    description = "Runs JavaScript or Python without access to files or networks"
    group = PaletteGroup.ACTION
    repeatable = True

    def __init__(self, runner: Sandbox) -> None:
        self._runner = runner

    async def run(self, context: NodeContext, parameters: CodeParameters, body: Any) -> Any:
        """Run the code, also in a dry run, because it has no access to anything else."""
        code = parameters.expression
        common = {"body": body, "properties": dict(context.properties)}
        # Passing variables is slow, so those that the code does not name are left out.
        variables = {name: value for name, value in common.items() if name in code.expression}
        variables |= context.resolve_references(parameters.input_arguments)
        value = await self._runner.run(
            context.owner, code.language, code.expression, variables, context.seconds_left
        )
        check_output_types(parameters.payload, value)
        return value
