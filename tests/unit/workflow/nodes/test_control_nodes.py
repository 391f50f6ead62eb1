"""Triggers, forks and entity nodes, each by itself."""

from collections.abc import Collection
from typing import Any

import msgspec
import pytest

from libs.common.contracts.entities import EntityValues, UpdateOutcome
from services.workflow.errors import NodeFailed, ValueUnknown
from services.workflow.expressions.cel import CelFailed, evaluate_cel
from services.workflow.nodes.base import BranchChoice, NodeContext, SampleOutput
from services.workflow.nodes.choice import Choice, ChoiceParameters
from services.workflow.nodes.entities import (
    EntityAssigner,
    EntityAssignerParameters,
    EntitySelector,
    EntitySelectorParameters,
    ServiceInvocation,
    ServiceInvocationParameters,
)
from services.workflow.nodes.triggers import Trigger, TriggerParameters

INPUTS = msgspec.convert(
    {
        "entityConfigs": [
            {"identify": "count", "name": "How many", "type": "LONG"},
            {"identify": "on", "name": "On", "type": "BOOLEAN"},
            {"identify": "text", "name": "Text", "type": "STRING"},
        ]
    },
    TriggerParameters,
)


def context(
    *, dry_run: bool = False, sampled: Collection[str] = (), **properties: Any
) -> NodeContext:
    """A node in a run."""
    return NodeContext(
        tenant="t",
        flow_id=1,
        run_id=2,
        node_id="n",
        node_name="N",
        hops=3,
        dry_run=dry_run,
        deadline=float("inf"),
        properties=properties,
        sampled=sampled,
    )


@pytest.mark.parametrize(
    ("given", "entered"),
    [
        ({"count": 5, "on": True, "text": "x"}, {"count": 5, "on": True, "text": "x"}),
        ({"How many": "5", "On": "true", "Text": 7}, {"count": 5, "on": True, "text": "7"}),
        ({"other": 1}, {}),
        ({"count": None}, {"count": None}),
        (None, {}),
    ],
)
def test_a_trigger_accepts_declared_inputs(given, entered):
    """They are found by identifier or name and converted to the declared type.

    Others are ignored.
    """
    assert Trigger().build_output(INPUTS, given) == entered


@pytest.mark.parametrize("given", [{"count": "many"}, {"on": 5.5}, {"text": [1]}, [1], "x"])
def test_a_trigger_rejects_invalid_inputs(given):
    """The error has the name of the input."""
    with pytest.raises(NodeFailed):
        Trigger().build_output(INPUTS, given)


def branch(name: str, *conditions: tuple[Any, str, Any], **more: Any) -> dict[str, Any]:
    """A branch of comparisons."""
    listed = [
        {"expressionValue": {"key": key, "operator": operator, "value": value}}
        for key, operator, value in conditions
    ]
    return {"id": name, "expressionType": "condition", "conditions": listed, **more}


async def choose(*branches: dict[str, Any], body: Any = None, code: Any = None) -> str | None:
    """Which branch is taken, with `otherwise` at the end."""
    raw = {"choice": {"when": list(branches), "otherwise": {"id": "else"}}}
    parameters = msgspec.convert(raw, ChoiceParameters)
    chosen = await Choice(code).run(context(n={"t": 31}), parameters, body)
    assert isinstance(chosen, BranchChoice)
    assert chosen.output is body
    return chosen.handle


YES, NO = ("#{properties.n['t']}", "GT", "30"), ("#{properties.n['t']}", "LT", "30")


async def test_the_first_branch_that_holds_is_taken():
    """In their order; none leads to `otherwise`."""
    assert await choose(branch("a", NO), branch("b", YES), branch("c", YES)) == "b"
    assert await choose(branch("a", NO)) == "else"
    assert await choose() == "else"


async def test_conditions_are_joined_as_the_branch_says():
    """With AND unless it says OR."""
    assert await choose(branch("a", YES, NO)) == "else"
    assert await choose(branch("a", YES, YES)) == "a"
    assert await choose(branch("a", NO, YES, logicOperator="OR")) == "a"
    assert await choose(branch("a", NO, NO, logicOperator="OR")) == "else"


@pytest.mark.parametrize(
    ("condition", "side"),
    [
        (("", "EQ", ""), "key"),
        ((None, "IS_EMPTY", None), "key"),
        ((" ", "GT", "30"), "key"),
        (("#{properties.n['t']}", "LT", ""), "value"),
        (("#{properties.n['t']}", "GE", None), "value"),
        (("#{properties.n['t']}", "EQ", ""), None),
        ((0, "LT", 0), None),
        ((False, "NE", None), None),
    ],
)
async def test_an_empty_comparison_is_named_before_any_run(condition, side):
    """A left side always, a number on the right where numbers are compared; empty texts are."""
    raw = {"choice": {"when": [branch("a", YES), branch("b", YES, condition)]}}
    found = await Choice(None).find_constant_faults("t", msgspec.convert(raw, ChoiceParameters))
    where = "choice.when[1].conditions[1].expressionValue"
    assert [entry.field for entry in found] == ([f"{where}.{side}"] if side else [])


async def test_a_condition_may_be_cel():
    """Over outputs and the body; anything but true or false is an error."""
    cel = {"id": "a", "expressionType": "cel"}
    good = {**cel, "conditions": [{"expressionValue": "properties.n.t > 30 && body.x == 'y'"}]}
    assert await choose(good, body={"x": "y"}) == "a"
    odd = {**cel, "conditions": [{"expressionValue": "properties.n.t + 1"}]}
    with pytest.raises(NodeFailed, match="true or false"):
        await choose(odd)


@pytest.mark.parametrize("heavy", ["", " || '1'.matches('2')"])
async def test_a_cel_expression_without_a_value_is_named_with_its_node(heavy):
    """This holds for immediate evaluation and in the sandbox."""

    class Code:
        async def run(self, owner, language, code, arguments, seconds):
            try:
                return evaluate_cel(code, arguments)
            except CelFailed as error:
                raise NodeFailed(f"code: {error}") from error

    expression = f"body.list[5] == 1{heavy}"
    when = {"id": "a", "expressionType": "cel", "conditions": [{"expressionValue": expression}]}
    with pytest.raises(NodeFailed) as failed:
        await choose(when, body={"list": [1]}, code=Code())
    reason = "has no value: index out of bounds: 5"
    assert str(failed.value) == f"N: `{expression}` {reason}"


async def test_a_condition_may_be_code():
    """In a language that somebody runs."""

    class Code:
        async def run(self, owner, language, code, arguments, seconds):
            assert (language, set(arguments)) == ("javascript", {"properties", "body"})
            return code == "return true"

    js = {"id": "a", "expressionType": "javascript"}
    when = {**js, "conditions": [{"expressionValue": "return true"}]}
    assert await choose(when, code=Code()) == "a"


class Entities:
    """A fake that records requests."""

    def __init__(self, **values: Any) -> None:
        self.known = values
        self.asked: list[Any] = []
        self.judged: list[Any] = []

    async def read_values(self, tenant, keys):
        found = {key: self.known[key] for key in keys if key in self.known}
        hidden = [key for key in found if key.startswith("pin")]
        return EntityValues(found | dict.fromkeys(hidden), hidden)

    async def update(self, tenant, exchange, hops, *, dry_run):
        (self.judged if dry_run else self.asked).append((tenant, exchange, hops))
        written = [key for key in exchange if key != "readonly"]
        hidden = [key for key in written if key.startswith("pin")]
        return UpdateOutcome(keys=written, write_only=hidden)

    async def call_services(self, tenant, exchange, hops, seconds, *, dry_run):
        (self.judged if dry_run else self.asked).append((tenant, exchange, hops))
        return {"answer": 42}


async def test_values_are_selected_by_key():
    """One without a value is null; one that is not there is an error with its key."""
    node = EntitySelector(Entities(a=1, b=None))
    chosen = await node.run(context(), EntitySelectorParameters(entities=["b", "a"]), None)
    assert chosen == {"b": None, "a": 1}
    with pytest.raises(NodeFailed, match="gone"):
        await node.run(context(), EntitySelectorParameters(entities=["a", "gone"]), None)


async def test_a_write_only_value_is_selected_as_null_and_the_log_says_so():
    node, asked = EntitySelector(Entities(a=1, pin="8642")), context()

    chosen = await node.run(asked, EntitySelectorParameters(entities=["a", "pin"]), None)

    assert chosen == {"a": 1, "pin": None}
    assert asked.notes == ["pin: write-only, so its value cannot be read"]


async def test_a_write_only_value_is_assigned_and_not_put_out():
    entities = Entities()
    parameters = EntityAssignerParameters(exchange_payload={"pin": "8642", "a": 1})

    put_out = await EntityAssigner(entities).run(context(), parameters, None)

    assert put_out == {"pin": None, "a": 1}
    assert entities.asked == [("t", {"pin": "8642", "a": 1}, 4)]


async def test_values_are_assigned_with_one_hop_more():
    """The output has the set values with resolved references."""
    entities = Entities()
    payload = {"a": "#{properties.n['t']}", "readonly": 1}
    parameters = EntityAssignerParameters(exchange_payload=payload)
    set_ = await EntityAssigner(entities).run(context(n={"t": 31}), parameters, None)
    assert set_ == {"a": 31}
    assert entities.asked == [("t", {"a": 31, "readonly": 1}, 4)]


async def test_nothing_to_set_is_an_error():
    """So that nobody waits for it in vain."""
    parameters = EntityAssignerParameters(exchange_payload={"readonly": 1})
    with pytest.raises(NodeFailed, match="writable property"):
        await EntityAssigner(Entities()).run(context(), parameters, None)


async def test_a_dry_run_sets_and_calls_nothing():
    """Actions are validated, and the response of a service is a sample of its type."""
    entities = Entities(a=1)
    dry = context(dry_run=True)
    assigned = EntityAssignerParameters(exchange_payload={"a": 5})
    assert await EntityAssigner(entities).run(dry, assigned, None) == {"a": 5}
    outputs = [{"name": "x", "type": "LONG"}, {"name": "y", "type": "STRING"}]
    raw = {"serviceInvocationSetting": {"serviceEntity": "a"}, "payload": outputs}
    parameters = msgspec.convert(raw, ServiceInvocationParameters)
    found = await ServiceInvocation(entities).run(dry, parameters, None)
    assert found == SampleOutput({"x": 0, "y": ""})
    assert (entities.asked, entities.judged) == ([], [("t", {"a": 5}, 4), ("t", {"a": {}}, 4)])


async def test_a_dry_run_does_not_validate_assumed_values():
    """An assumed answer is neither right nor wrong, but an entity must exist."""
    dry = context(dry_run=True, sampled={"ask"}, ask={"statusCode": 200})
    entities = Entities(a=1, b=2)
    payload = {"a": "#{properties.ask['statusCode']}", "b": 7}
    assigned = EntityAssignerParameters(exchange_payload=payload)
    assert await EntityAssigner(entities).run(dry, assigned, None) == {"b": 7}
    assert entities.judged == [("t", {"b": 7}, 4)]
    gone = EntityAssignerParameters(exchange_payload={"gone": payload["a"]})
    with pytest.raises(NodeFailed, match="gone"):
        await EntityAssigner(entities).run(dry, gone, None)
    deeper = EntityAssignerParameters(exchange_payload={"a": "#{properties.ask['x']}"})
    with pytest.raises(ValueUnknown):
        await EntityAssigner(entities).run(dry, deeper, None)


async def test_an_answer_of_another_type_than_declared_is_an_error():
    """With its name and value, as the notes have it."""
    raw = {
        "serviceInvocationSetting": {"serviceEntity": "s", "serviceParams": {"s.x": 1}},
        "payload": [{"name": "answer", "type": "STRING"}],
    }
    entities = Entities()
    parameters = msgspec.convert(raw, ServiceInvocationParameters)
    with pytest.raises(NodeFailed, match="output answer must be STRING"):
        await ServiceInvocation(entities).run(context(), parameters, None)
    assert entities.asked == [("t", {"s.x": 1}, 4)]
