"""`code`: runs JavaScript or Python between two nodes."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

import msgspec

from services.workflow.nodes.base import NodeContext, PaletteGroup, Step
from services.workflow.nodes.parameters import (
    Code,
    Fault,
    Output,
    Parameters,
    check_outputs,
    declared_outputs,
    find_duplicates,
    parameter,
)
from services.workflow.sandbox.runner import LANGUAGES, Sandbox, unknown_language

LONGEST_CODE = 64_000
MAX_ARGUMENTS = 100
CONTEXT_VARIABLES = ("body", "properties")
"""Variables of all code: the input, and the outputs so far by node."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}").fullmatch


class Expression(msgspec.Struct, rename="camel"):
    """A piece of code and its language."""

    expression: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_CODE)]
    """The code."""
    language: Annotated[str, msgspec.Meta(description="`js` or `python`")] = "js"


class CodeParameters(Parameters):
    """The code to run."""

    verbatim: ClassVar[frozenset[str]] = frozenset({"expression"})

    expression: Annotated[
        Expression,
        parameter(
            "Code",
            "JavaScript: the body of a function that returns its output. Python: def main(), or "
            "statements, the last of which is the output. `body` and `properties` are available in "
            "addition to the inputs.",
            ui="codeEditor",
        ),
    ]
    input_arguments: Annotated[
        dict[str, Any],
        parameter(
            "Inputs", "Variables of the code", ui="paramAssignInput", max_length=MAX_ARGUMENTS
        ),
    ] = msgspec.field(default_factory=dict)
    payload: Annotated[
        list[Output], declared_outputs("Keys of the map that the code returns", MAX_ARGUMENTS)
    ] = msgspec.field(default_factory=list)

    def faults(self) -> Iterable[Fault]:
        """Yield unsupported languages, invalid names and duplicate outputs."""
        if self.expression.language not in LANGUAGES:
            text = unknown_language(self.expression.language)
            yield Fault("expression.language", text)
        for name in self.input_arguments:
            if not _VARIABLE(name):
                text = "must have at most 50 letters, digits and _, and not start with a digit"
                yield Fault(f"inputArguments.{name:.60}", text)
        yield from find_duplicates("payload", (output.name for output in self.payload))

    def code(self) -> Iterable[Code]:
        """Yield the code with its variables."""
        names = [*self.input_arguments, *CONTEXT_VARIABLES]
        code = self.expression
        yield Code(
            "expression.expression", code.language, code.expression, list(dict.fromkeys(names))
        )


class CodeNode(Step[CodeParameters]):
    """Runs code in the sandbox. Its value is the output."""

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
        variables |= context.resolve(parameters.input_arguments)
        value = await self._runner.run(
            context.owner, code.language, code.expression, variables, context.seconds_left
        )
        check_outputs(parameters.payload, value)
        return value
