"""`choice`: continues with the first branch whose conditions are true."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from services.workflow.errors import NodeFailed
from services.workflow.expressions.cel import (
    CelFailed,
    compile_cel,
    evaluate_cel,
    is_cheap,
    is_input_small,
    select_variables,
)
from services.workflow.expressions.conditions import ConditionFailed, compare
from services.workflow.expressions.references import (
    Reference,
    ReferenceInvalid,
    find_references,
)
from services.workflow.nodes.base import BranchChoice, NodeContext, PaletteGroup, Step
from services.workflow.nodes.code import CONTEXT_VARIABLES
from services.workflow.nodes.parameters import (
    CodeParameter,
    ParameterFault,
    Parameters,
    parameter_meta,
)
from services.workflow.sandbox.runner import LANGUAGES_BY_NAME, UNSUPPORTED_LANGUAGES, Sandbox

MAX_BRANCHES = 50
MAX_CONDITIONS = 50
MAX_CONDITION_CHARACTERS = 64_000
_UNARY_OPERATORS = ("IS_EMPTY", "IS_NOT_EMPTY")
_NUMERIC_OPERATORS = ("GT", "GE", "LT", "LE")

Operator = Literal[
    "CONTAINS",
    "NOT_CONTAINS",
    "START_WITH",
    "END_WITH",
    "EQ",
    "NE",
    "IS_EMPTY",
    "IS_NOT_EMPTY",
    "GT",
    "GE",
    "LT",
    "LE",
]
ExpressionType = Literal["condition", "cel", "js", "javascript", "python", "groovy", "mvel"]


class Comparison(msgspec.Struct, rename="camel"):
    """`key operator value`. Both operands may be references."""

    key: Any = None
    """Left operand."""
    operator: Operator = "EQ"
    """`EQ` equal, `NE` not equal, `GT` greater, `GE` greater or equal, `LT` less, `LE` less or
    equal."""
    value: Any = None
    """Right operand; ignored by `IS_EMPTY` and `IS_NOT_EMPTY`."""


class Condition(msgspec.Struct, rename="camel"):
    """A comparison, or an expression in a language."""

    expression_value: Comparison | Annotated[str, msgspec.Meta(max_length=MAX_CONDITION_CHARACTERS)]
    """Comparison, or the expression if `expressionType` names a language."""
    id: str | None = None
    """Used by editors only."""


class Branch(msgspec.Struct, rename="camel"):
    """A branch with its conditions."""

    id: Annotated[str, msgspec.Meta(description="`sourceHandle` of the edges of this branch")]
    conditions: Annotated[list[Condition], msgspec.Meta(min_length=1, max_length=MAX_CONDITIONS)]
    """Conditions of the branch."""
    logic_operator: Annotated[
        Literal["AND", "OR"],
        msgspec.Meta(description="Whether all conditions must be true, or one of them"),
    ] = "AND"
    expression_type: Annotated[
        ExpressionType,
        msgspec.Meta(
            description="`condition`, or the language of the conditions. `mvel` is read as `cel`; "
            "`groovy` is rejected"
        ),
    ] = "condition"

    def __post_init__(self) -> None:
        """Treat MVEL, the default of an existing editor, as CEL: same operators."""
        if self.expression_type == "mvel":
            self.expression_type = "cel"


class ElseBranch(msgspec.Struct):
    """The branch to follow if no branch is true."""

    id: Annotated[str, msgspec.Meta(description="`sourceHandle` of the edges of this branch")]


class Branches(msgspec.Struct):
    """The branches in the order of evaluation."""

    when: Annotated[list[Branch], msgspec.Meta(max_length=MAX_BRANCHES)] = []
    """Branches with conditions."""
    otherwise: ElseBranch | None = None
    """Followed if no branch is true. Without it, the path then ends."""


class ChoiceParameters(Parameters):
    """The branches of a fork."""

    verbatim = frozenset({"choice"})

    choice: Annotated[
        Branches,
        parameter_meta(
            "Conditions", "The first branch that is true is followed", ui="conditionsInput"
        ),
    ]

    def list_branch_ids(self) -> Iterator[str]:
        """Yield the ids of the branches."""
        yield from (branch.id for branch in self.choice.when)
        if self.choice.otherwise is not None:
            yield self.choice.otherwise.id

    def find_faults(self) -> Iterable[ParameterFault]:
        """Yield duplicate ids and invalid conditions."""
        ids = list(self.list_branch_ids())
        if len(set(ids)) < len(ids):
            yield ParameterFault("choice.when", "two branches have the same id; ids must be unique")
        for field, branch, condition in self._iterate_conditions():
            if reason := _find_condition_fault(branch.expression_type, condition.expression_value):
                yield ParameterFault(field, reason)

    def find_verbatim_references(self) -> Iterable[tuple[str, Reference]]:
        """Yield the references of comparisons; other conditions have none."""
        for field, branch, condition in self._iterate_conditions():
            value = condition.expression_value
            if isinstance(value, Comparison) and not _find_condition_fault(
                branch.expression_type, value
            ):
                yield from ((field, found) for found in find_references([value.key, value.value]))

    def list_code(self) -> Iterable[CodeParameter]:
        """Yield the conditions in a programming language."""
        for field, branch, condition in self._iterate_conditions():
            text = condition.expression_value
            if branch.expression_type in LANGUAGES_BY_NAME and isinstance(text, str):
                yield CodeParameter(field, branch.expression_type, text, CONTEXT_VARIABLES)

    def find_empty_comparisons(self) -> Iterator[ParameterFault]:
        """Yield comparisons without a required operand."""
        for field, _, condition in self._iterate_conditions():
            value = condition.expression_value
            if not isinstance(value, Comparison):
                continue
            if _is_blank(value.key):
                yield ParameterFault(f"{field}.key", "must not be empty; choose a value to compare")
            elif value.operator in _NUMERIC_OPERATORS and _is_blank(value.value):
                yield ParameterFault(f"{field}.value", "must not be empty; enter a number")

    def _iterate_conditions(self) -> Iterator[tuple[str, Branch, Condition]]:
        for at, branch in enumerate(self.choice.when):
            for place, condition in enumerate(branch.conditions):
                yield f"choice.when[{at}].conditions[{place}].expressionValue", branch, condition


def _find_condition_fault(kind: ExpressionType, value: Comparison | str) -> str | None:
    if kind in UNSUPPORTED_LANGUAGES:
        return f"must be condition, cel, js or python. Got {kind}."
    if isinstance(value, Comparison) != (kind == "condition"):
        return "must be {key, operator, value}" if kind == "condition" else "must be a text"
    try:
        if isinstance(value, Comparison):
            list(find_references([value.key, value.value]))
        elif kind == "cel":
            compile_cel(value)
        elif not value.strip():
            return "must not be empty"
    except (ReferenceInvalid, CelFailed) as error:
        return str(error)
    return None


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


class Choice(Step[ChoiceParameters]):
    """Continues the flow at the first branch whose conditions hold."""

    name = "choice"
    title = "If / Else"
    description = "Continues with the first branch whose conditions are true"
    group = PaletteGroup.CONTROL
    testable = False
    repeatable = True
    forks = True

    def __init__(self, code: Sandbox) -> None:
        self._code = code

    def list_handles(self, parameters: ChoiceParameters) -> Iterable[str]:
        """Return the ids of the branches."""
        return parameters.list_branch_ids()

    async def find_constant_faults(
        self, tenant: str, parameters: ChoiceParameters
    ) -> Iterable[ParameterFault]:
        """Return faults of empty comparisons, which flows that already run may have."""
        return parameters.find_empty_comparisons()

    def is_quick(self, parameters: ChoiceParameters) -> bool:
        """Return whether no condition is code or a slow expression."""
        return not any(
            branch.expression_type in LANGUAGES_BY_NAME
            or (
                branch.expression_type == "cel"
                and not all(is_cheap(str(each.expression_value)) for each in branch.conditions)
            )
            for branch in parameters.choice.when
        )

    def is_instant(self, parameters: ChoiceParameters) -> bool:
        """Return whether the fork has at most one condition, a comparison."""
        branches = parameters.choice.when
        kinds = [branch.expression_type for branch in branches for _ in branch.conditions]
        return kinds in ([], ["condition"])

    async def run(
        self, context: NodeContext, parameters: ChoiceParameters, body: Any
    ) -> BranchChoice:
        """Choose the first branch whose conditions are true; the output is the input."""
        for place, branch in enumerate(parameters.choice.when):
            if place:
                await asyncio.sleep(0)  # lets other tasks run, as each may search a long list
            if await self._is_branch_true(context, branch, body):
                return BranchChoice(branch.id, body)
        otherwise = parameters.choice.otherwise
        return BranchChoice(None if otherwise is None else otherwise.id, body)

    async def _is_branch_true(self, context: NodeContext, branch: Branch, body: Any) -> bool:
        every = branch.logic_operator == "AND"
        for place, condition in enumerate(branch.conditions):
            if place:
                await asyncio.sleep(0)
            if await self._is_true(context, branch.expression_type, condition, body) != every:
                return not every
        return every

    async def _is_true(
        self, context: NodeContext, kind: str, condition: Condition, body: Any
    ) -> bool:
        value = condition.expression_value
        try:
            if isinstance(value, Comparison):
                blank = value.operator in _UNARY_OPERATORS
                right = None if blank else context.resolve_references(value.value)
                return compare(value.operator, context.resolve_references(value.key), right)
            result = await self._evaluate_expression(context, kind, value, body)
        except CelFailed as error:
            raise NodeFailed(f"{context.node_name}: `{value:.200}` {error}") from error
        except ConditionFailed as error:
            raise NodeFailed(str(error)) from error
        if not isinstance(result, bool):
            raise NodeFailed(f"a condition must be true or false. Got {result!r:.100}.")
        return result

    async def _evaluate_expression(
        self, context: NodeContext, kind: str, text: str, body: Any
    ) -> Any:
        variables: Mapping[str, Any] = {"properties": context.properties, "body": body}
        if kind == "cel":
            variables = select_variables(text, context.properties, body)
            if is_cheap(text) and is_input_small(variables):
                return evaluate_cel(text, variables)
        owner, seconds = context.owner, context.seconds_left
        try:
            return await self._code.run(owner, kind, text, variables, seconds)
        except NodeFailed as error:
            if kind != "cel":
                raise
            raise CelFailed(str(error).removeprefix("code: ")) from error
