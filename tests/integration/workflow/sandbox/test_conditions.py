"""Conditions in CEL that could take long: they are ended, and nobody else waits."""

import msgspec
import pytest

from services.workflow.errors import NodeFailed
from services.workflow.nodes.base import NodeContext
from services.workflow.nodes.choice import Choice, ChoiceParameters
from services.workflow.runs.model import FlowOwner
from services.workflow.sandbox.runner import LANGUAGES_BY_NAME, Sandbox

OWNER = FlowOwner("t", 1)


def context(properties: dict) -> NodeContext:
    """A run in which nodes have put this out."""
    return NodeContext(
        tenant="t",
        flow_id=1,
        run_id=2,
        node_id="n",
        node_name="N",
        hops=0,
        dry_run=False,
        deadline=float("inf"),
        properties=properties,
    )


HEAVY = [
    "body.all(x, body.all(y, true))",
    "body.all(x, body.map(y, y).size() > 0)",
    "+".join(["body"] * 390) + " == body",
]


@pytest.mark.parametrize("text", HEAVY, ids=("lists in lists", "maps", "sums"))
async def test_a_condition_that_takes_long_is_ended(sandbox: Sandbox, text: str):
    """CEL walks lists inside lists; it does so where it can be ended."""
    with pytest.raises(NodeFailed, match=r"took too long|memory|was ended|has no value"):
        await sandbox.run(OWNER, "cel", text, {"body": [1] * 100_000}, 1.0)
    assert await sandbox.run(OWNER, "cel", "body.exists(x, x > 1)", {"body": [1, 2]}, 1.0) is True


async def chosen(sandbox: Sandbox, text: str, properties: dict) -> str | None:
    """The branch that a choice node takes."""
    when = {"id": "yes", "expressionType": "cel", "conditions": [{"expressionValue": text}]}
    parameters = msgspec.convert({"choice": {"when": [when]}}, ChoiceParameters)
    return (await Choice(sandbox).run(context(properties), parameters, None)).handle


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("properties.n.exists(x, x == 2)", {"n": [1, 2]}),
        ("size(properties.n) == 20000", {"n": [1] * 20_000}),
        ("properties['n'].a > 1", {"n": {"a": 2}, "other": [1] * 500_000}),
        ("size(properties) == 2", {"n": 1, "m": 2}),
    ],
)
async def test_the_value_of_a_condition(sandbox: Sandbox, text: str, properties: dict):
    """Both evaluators return the same value with only the named variables."""
    assert await chosen(sandbox, text, properties) == "yes"


@pytest.mark.parametrize("text", HEAVY, ids=("lists in lists", "maps", "sums"))
async def test_a_choice_sends_such_conditions_away(text: str):
    """They are not evaluated in the process of the engine."""

    class Away:
        async def run(self, *_):
            raise NodeFailed("code: came to the sandbox")

    text = text.replace("body", "properties.n")
    with pytest.raises(NodeFailed, match="came to the sandbox"):
        await chosen(Away(), text, {"n": [1]})  # type: ignore[arg-type]


async def test_code_nodes_have_no_cel():
    """It is the language of conditions."""
    assert "cel" not in LANGUAGES_BY_NAME
