"""`code`: a piece of JavaScript or Python between two nodes."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

import msgspec

from services.workflow.nodes.base import Group, NodeContext, Step
from services.workflow.nodes.parameters import (
    Code,
    Fault,
    Output,
    Parameters,
    check_outputs,
    declared_outputs,
    duplicate_faults,
    parameter,
)
from services.workflow.sandbox.runner import LANGUAGES, Sandbox, unknown_language

LONGEST_CODE = 64_000
MOST_ARGUMENTS = 100
SURROUNDINGS = ("body", "properties")
"""Variables of all code: what came in, and the outputs so far by node."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}").fullmatch


class Expression(msgspec.Struct, rename="camel"):
    """A piece of code, and its language."""

    expression: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_CODE)]
    language: str = "js"


class CodeParameters(Parameters):
    """What to run."""

    verbatim: ClassVar[frozenset[str]] = frozenset({"expression"})

    expression: Annotated[
        Expression,
        parameter(
            "Code",
            "JavaScript: the body of a function, which gives its output with return. Python: "
            "def main(), or statements of which the last has the value. `body` and `properties` "
            "are there besides the inputs.",
            ui="codeEditor",
        ),
    ]
    input_arguments: Annotated[
        dict[str, Any],
        parameter(
            "Inputs", "Variables of the code", ui="paramAssignInput", max_length=MOST_ARGUMENTS
        ),
    ] = msgspec.field(default_factory=dict)
    payload: Annotated[
        list[Output], declared_outputs("What the map that the code gives holds", MOST_ARGUMENTS)
    ] = msgspec.field(default_factory=list)

    def faults(self) -> Iterable[Fault]:
        """Languages that are not run, names that no variable has, outputs named twice."""
        if self.expression.language not in LANGUAGES:
            text = unknown_language(self.expression.language)
            yield Fault("expression.language", text)
        for name in self.input_arguments:
            if not _VARIABLE(name):
                text = "must begin with a letter and have only letters, digits and _, at most 50"
                yield Fault(f"inputArguments.{name:.60}", text)
        yield from duplicate_faults("payload", (one.name for one in self.payload))

    def code(self) -> Iterable[Code]:
        """The one piece."""
        names = [*self.input_arguments, *SURROUNDINGS]
        one = self.expression
        yield Code(
            "expression.expression", one.language, one.expression, list(dict.fromkeys(names))
        )


class CodeNode(Step[CodeParameters]):
    """Runs code in the sandbox; its value is the output."""

    name = "code"
    title = "Code"
    description = "Runs JavaScript or Python that can compute and nothing else"
    group = Group.ACTION
    repeatable = True

    def __init__(self, runner: Sandbox) -> None:
        self._runner = runner

    async def run(self, context: NodeContext, parameters: CodeParameters, body: Any) -> Any:
        """Run it; a test runs it, too, since it cannot touch the outside."""
        code = parameters.expression
        named = {"body": body, "properties": dict(context.properties)}
        # Handing over what the code does not name costs.
        found = {name: value for name, value in named.items() if name in code.expression}
        found |= context.resolve(parameters.input_arguments)
        value = await self._runner.run(
            context.owner, code.language, code.expression, found, context.seconds_left
        )
        check_outputs(parameters.payload, value)
        return value
