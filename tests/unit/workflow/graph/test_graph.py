"""Designs are checked with reasons and compiled to plans."""

from itertools import pairwise

import pytest

from services.workflow.graph.design import DesignInvalid
from services.workflow.graph.plan import Plan, compile_design
from services.workflow.nodes.base import NodeRegistry
from services.workflow.nodes.choice import Choice
from services.workflow.nodes.entities import EntitySelector
from services.workflow.nodes.output import Output
from services.workflow.nodes.triggers import Trigger
from tests.integration.workflow.designs import (
    HOT,
    alarm,
    choice,
    design,
    edge,
    node,
    trigger,
    when,
)

SELECT = "entitySelector"
REGISTRY = NodeRegistry([Trigger(), Choice(None), EntitySelector(None), Output()])  # type: ignore[arg-type]


def chain(*ids: str) -> list:
    """Edges from each to the next."""
    return [edge(one, other) for one, other in pairwise(ids)]


def selector(node_id: str) -> dict:
    """A node that is right by itself."""
    return node(node_id, SELECT, entities=[HOT])


def compiled(text: str) -> Plan:
    """The plan."""
    return compile_design(text, REGISTRY)


BAD = {
    "a cycle": (
        design([trigger(), selector("a"), selector("b")], *chain("start", "a", "b", "a")),
        ("a", "edges"),
    ),
    "a dangling edge": (design([trigger()], edge("start", "gone")), (None, "edges[0].target")),
    "two entries": (
        design([trigger(), {**trigger(), "id": "again"}]),
        ("start", "nodes"),
    ),
    "no entry": (design([selector("a"), selector("b")], *chain("a", "b", "a")), (None, "nodes")),
    "an action first": (design([selector("a")]), ("a", "nodes")),
    "an entry in the middle": (
        design(
            [trigger(), {**trigger(), "id": "again"}, selector("a")], *chain("start", "again", "a")
        ),
        ("again", "edges"),
    ),
    "nothing": (design([]), (None, "nodes")),
    "an id twice": (design([trigger(), trigger()]), ("start", "id")),
    "an id that no reference can name": (design([{**trigger(), "id": "_a b"}]), ("_a b", "id")),
    "an unknown component": (
        design([trigger(), node("odd", "teleport")], edge("start", "odd")),
        ("odd", "componentName"),
    ),
    "a thousand nodes": (
        design([trigger(), *(selector(f"n{number}") for number in range(1000))]),
        (None, "nodes"),
    ),
    "no JSON": ("{", (None, "design_data")),
    "depth": ("[" * 200_000, (None, "design_data")),
    "5 MB": (
        design([trigger(), node("a", SELECT, code="x" * 5_000_000)]),
        (None, "design_data"),
    ),
    "a parameter of the wrong type": (
        design([trigger(), node("a", SELECT, entities="x")], edge("start", "a")),
        ("a", "parameters.entities"),
    ),
    "a parameter that is missing": (
        design([trigger(), node("a", SELECT)], edge("start", "a")),
        ("a", "parameters.entities"),
    ),
    "no branch of that name": (
        design(
            [trigger(), choice(when("yes", "1", "EQ", "1")), selector("a")],
            edge("start", "fork"),
            edge("fork", "a", "maybe"),
        ),
        ("fork", "edges[1].sourceHandle"),
    ),
    "an operator that there is not": (
        design([trigger(), choice(when("yes", "1", "LIKE", "1"))], edge("start", "fork")),
        ("fork", "parameters.choice.when[0].conditions[0].expressionValue.operator"),
    ),
    "groovy": (
        design(
            [
                trigger(),
                choice(
                    {
                        "id": "y",
                        "expressionType": "groovy",
                        "conditions": [{"expressionValue": "1 == 1"}],
                    }
                ),
            ],
            edge("start", "fork"),
        ),
        ("fork", "parameters.choice.when[0].conditions[0].expressionValue"),
    ),
    "a reference inside a reference": (
        design(
            [
                trigger(),
                node(
                    "a",
                    "output",
                    outputVariables={"x": "#{properties.start['#{properties.start}']}"},
                ),
            ],
            edge("start", "a"),
        ),
        ("a", "parameters.outputVariables"),
    ),
    "a reference to no node": (
        design(
            [trigger(), node("a", "output", outputVariables={"x": "#{properties.gone['y']}"})],
            edge("start", "a"),
        ),
        ("a", "parameters.outputVariables"),
    ),
    "a condition about no node": (
        design(
            [trigger(), choice(when("yes", "#{properties.gone['y']}", "EQ", "1"))],
            edge("start", "fork"),
        ),
        ("fork", "parameters.choice.when[0].conditions[0].expressionValue"),
    ),
    "an edge twice": (
        design([trigger(), selector("a")], edge("start", "a"), edge("start", "a")),
        ("start", "edges"),
    ),
}


def test_a_node_may_have_a_type_alone():
    """Editors send only `type` for unknown nodes, possibly with another name."""
    fork = choice(when("yes", "1", "EQ", "1"))
    nodes = [fork | {"type": "ifelse"}, node("end", "output")]
    for one in nodes:
        del one["componentName"]
    plan = compiled(design([trigger(), *nodes], edge("start", "fork"), edge("fork", "end", "yes")))
    assert [one.type.name for one in plan.nodes.values()] == ["trigger", "choice", "output"]


def test_mvel_is_read_as_cel():
    """Existing editors begin a condition in words with it; both write comparisons alike."""
    condition = {"expressionValue": "properties.start.x > 1 && body.x < 9"}
    branch = {"id": "y", "expressionType": "mvel", "conditions": [condition]}
    text = design([trigger(("x", "LONG")), choice(branch)], edge("start", "fork"))
    assert compiled(text).nodes["fork"].parameters.choice.when[0].expression_type == "cel"
    condition["expressionValue"] = "x = [:]; return x"
    with pytest.raises(DesignInvalid, match="is not valid CEL"):
        compiled(design([trigger(), choice(branch)], edge("start", "fork")))


@pytest.mark.parametrize("case", BAD)
def test_a_bad_design_is_refused_with_its_reason(case):
    """The reason says where it is wrong, and in words what to do."""
    text, place = BAD[case]
    with pytest.raises(DesignInvalid) as caught:
        compiled(text)
    assert place in [(reason.node_id, reason.field) for reason in caught.value.reasons]
    assert all(reason.reason for reason in caught.value.reasons)


def test_all_faults_are_returned_together():
    """Every node at fault is named."""
    text = design(
        [trigger(), node("a", SELECT), node("b", SELECT, entities=5)], *chain("start", "a", "b")
    )
    with pytest.raises(DesignInvalid) as caught:
        compiled(text)
    assert [reason.node_id for reason in caught.value.reasons] == ["a", "b"]


def test_a_plan_contains_parameters_and_edges():
    """It has parameters as structs, followers with their handles, and incoming edges."""
    text = design(
        [trigger(), choice(when("yes", "1", "EQ", "1")), selector("a"), selector("b")],
        edge("start", "fork"),
        edge("fork", "a", "yes"),
        edge("fork", "b", "else"),
        edge("a", "b"),
    )
    plan = compiled(text)

    assert plan.entry.id == "start"
    outgoing_edges = [(edge.target, edge.handle) for edge in plan.nodes["fork"].outgoing_edges]
    assert outgoing_edges == [("a", "yes"), ("b", "else")]
    assert plan.nodes["b"].incoming_edge_count == 2
    assert plan.nodes["a"].parameters.entities == [HOT]
    assert plan.nodes["a"].name == "A"


def test_additional_fields_of_editors_are_ignored():
    """These are sizes, positions, fields of other versions and unknown parameters."""
    odd = {**selector("a"), "measured": {"width": 1}, "zIndex": 5}
    odd["data"]["parameters"]["newer"] = "#{properties.start}"
    assert set(compiled(design([trigger(), odd], edge("start", "a"))).nodes) == {"start", "a"}


def test_a_flow_of_an_entry_alone_can_run():
    """It does nothing, which is allowed."""
    assert compiled(design([trigger()])).entry.outgoing_edges == ()


@pytest.mark.parametrize("text", ["null", "5", "[]", '{"nodes": [{}]}', '{"nodes": null}', "{"])
def test_an_invalid_design_is_rejected(text):
    """Any other JSON is rejected."""
    with pytest.raises(DesignInvalid):
        compiled(text)


def test_the_flow_of_the_tests_needs_a_node_type_that_is_not_here():
    """Unknown types are named, not guessed."""
    with pytest.raises(DesignInvalid, match="entityAssigner"):
        compiled(alarm())
