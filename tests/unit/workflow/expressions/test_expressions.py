"""References, conditions and CEL."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.workflow.expressions import cel
from services.workflow.expressions.cel import CelFailed, compile_cel, evaluate_cel
from services.workflow.expressions.conditions import (
    COMPARISONS_BY_OPERATOR,
    ConditionFailed,
    compare,
)
from services.workflow.expressions.references import (
    ReferenceInvalid,
    ReferenceMissing,
    find_references,
    resolve_references,
    split_references,
)

OUTPUTS = {
    "n1": {"t": 21.5, "on": True, "list": [1, {"x": "deep"}], "a.b": "dots", "it's": 1, "no": None},
    "n2": "text",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#{properties.n1['t']}", 21.5),
        ('#{properties.n1["t"]}', 21.5),
        ("#{ properties.n1.t }", 21.5),
        ("#{properties['n1']['on']}", True),
        ("#{properties.n1['a.b']}", "dots"),
        ("#{properties.n1['it''s']}", 1),
        ("#{properties.n1['list'][1]['x']}", "deep"),
        ("#{properties.n1.list[0]}", 1),
        ("#{properties.n1['no']}", None),
        ("#{properties.n2}", "text"),
        ("#{properties.n1}", OUTPUTS["n1"]),
        ("Temp is #{properties.n1['t']}.", "Temp is 21.5."),
        ("#{properties.n1['on']}#{properties.n2}", "truetext"),
        ("[#{properties.n1['no']}]", "[]"),
        ("#{properties.n1['list']}!", '[1,{"x":"deep"}]!'),
        ("plain # {x} $", "plain # {x} $"),
        ("", ""),
        (5, 5),
        (None, None),
        (["#{properties.n2}", {"k": "#{properties.n1.t}"}], ["text", {"k": 21.5}]),
    ],
)
def test_a_reference_is_replaced_by_its_value(text, expected):
    """A pure reference keeps its type; in a text it becomes text."""
    assert expected == resolve_references(text, OUTPUTS)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("#{properties.gone['x']}", "gone"),
        ("#{properties.n1['gone']}", "gone"),
        ("#{properties.n1['list'][9]}", "9"),
        ("#{properties.n2['x']}", "'x'"),
        ("a #{properties.n1['t']['deeper']}", "deeper"),
    ],
)
def test_a_reference_to_nothing_names_it(text, named):
    """The error of the node contains the reference."""
    with pytest.raises(ReferenceMissing, match=named):
        resolve_references(text, OUTPUTS)


@pytest.mark.parametrize(
    "text",
    [
        "#{",
        "#{}",
        "#{properties}",
        "#{body['x']}",
        "#{properties.n1['t'] + 1}",
        "#{T(java.lang.Runtime).getRuntime()}",
        "#{properties.n1['#{properties.n2}']}",
        "#{properties.n1" + "['x']" * 100 + "}",
        "#{properties.n1['t'}",
    ],
)
def test_other_expressions_are_rejected(text):
    """Only paths to outputs are accepted, and nothing is evaluated."""
    with pytest.raises(ReferenceInvalid):
        list(find_references({"x": [text]}))


def test_parameters_that_are_nested_too_deep_are_refused():
    """A list in a list in a list, without end."""
    deep: object = "x"
    for _ in range(50):
        deep = [deep]
    with pytest.raises(ReferenceInvalid, match="deep"):
        list(find_references(deep))


@given(st.text())
def test_any_text_is_read_or_refused(text):
    """No text raises any other error."""
    try:
        split_references(text)
    except ReferenceInvalid:
        return


CASES = [
    ("CONTAINS", "abc", "b", True),
    ("CONTAINS", [1, "2"], 2, True),
    ("CONTAINS", [1, 2], "3", False),
    ("CONTAINS", None, "x", False),
    ("NOT_CONTAINS", "abc", "z", True),
    ("START_WITH", "abc", "ab", True),
    ("START_WITH", "abc", "bc", False),
    ("END_WITH", "abc", "bc", True),
    ("END_WITH", "abc", "ab", False),
    ("EQ", 30, "30", True),
    ("EQ", 30.0, "30", True),
    ("EQ", 30, 30.0, True),
    ("EQ", True, "true", True),
    ("EQ", True, 1, False),
    ("EQ", "a", "b", False),
    ("EQ", None, None, True),
    ("EQ", None, "", False),
    ("EQ", [1], [1], True),
    ("NE", "a", "b", True),
    ("IS_EMPTY", "", None, True),
    ("IS_EMPTY", None, None, True),
    ("IS_EMPTY", [], None, True),
    ("IS_EMPTY", 0, None, False),
    ("IS_NOT_EMPTY", "x", None, True),
    ("GT", "31", "30", True),
    ("GT", "9", "10", False),
    ("GT", None, 1, False),
    ("GE", 30, "30.0", True),
    ("LT", 0.1, "0.2", True),
    ("LE", "1e3", 999, False),
]


@pytest.mark.parametrize(("operator", "left", "right", "expected"), CASES)
def test_operators_compare_as_documented(operator, left, right, expected):
    """Numbers in any form are compared as numbers, other values as text."""
    assert expected is compare(operator, left, right)


def test_all_twelve_operators_are_tried():
    """The operators are the same as in editors."""
    assert {case[0] for case in CASES} == set(COMPARISONS_BY_OPERATOR)
    assert len(COMPARISONS_BY_OPERATOR) == 12


@pytest.mark.parametrize(
    ("operator", "left", "right"),
    [("GT", "warm", 1), ("LT", True, 1), ("LE", [1], 1), ("CONTAINS", 5, 5), ("GT", "nan", 1)],
)
def test_comparing_incompatible_values_is_an_error(operator, left, right):
    """False would hide the mistake."""
    with pytest.raises(ConditionFailed):
        compare(operator, left, right)


def test_cel_reads_outputs_and_the_body():
    """The variables are those of references."""
    found = evaluate_cel(
        "properties.n1.t > 20.0 && body.name in ['a', 'b']",
        {"properties": OUTPUTS, "body": {"name": "a"}},
    )
    assert found is True


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("a ==", "not valid CEL"),
        ("x" * 5000, "at most 2000"),
        ("l.all(a, l.all(b, l.all(c, a > b)))", "at most 2 macros"),
        ("(" * 900 + "1" + ")" * 900, "not valid CEL"),
    ],
)
def test_cel_that_cannot_be_taken_says_why(text, reason):
    """Before a flow runs."""
    with pytest.raises(CelFailed, match=reason):
        compile_cel(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("body.gone > 1", "key 'gone' does not exist"),
        ("body.l[5] == 1", "index out of bounds: 5"),
        ("body.l[-1] == 1", "index out of bounds: -1"),
        ("body.l.map(x, x)[3] == 1", "index out of bounds: 3"),
        ("[1][9223372036854775807] == 1", "index out of bounds"),
        ("body.l['a'] == 1", "Unexpected type"),
        ("1 / 0 > 1", "division by zero"),
        ("1 % 0 > 1", "modulo by zero"),
        ("body.i + 1 > 0", "overflow"),
        ("-body.i - 2 > 0", "overflow"),
        ("int('x') > 1", "parse error"),
        ("int(1e300) > 1", "overflow"),
        ("timestamp('x') > timestamp('y')", "Function 'timestamp'"),
        ("body.s.matches('(')", "not a valid regex"),
        ("'a' > 1", "No such overload"),
        ("body.s.none() > 1", "Undefined"),
        ("nobody", "Undefined"),
    ],
)
def test_cel_without_a_value_is_a_fault_of_the_expression(text, reason):
    """All errors of the library become `CelFailed`."""
    with pytest.raises(CelFailed, match=f"has no value: .*{reason}"):
        evaluate_cel(text, {"body": {"l": [1, 2], "i": 2**63 - 1, "s": "x"}})


def test_any_exception_of_the_library_is_a_fault(monkeypatch):
    """Its next version may raise other exceptions."""

    class Program:
        def execute(self, variables):
            raise AttributeError

    monkeypatch.setattr(cel, "compile_cel", lambda text: Program())
    with pytest.raises(CelFailed, match="has no value: AttributeError"):
        evaluate_cel("x", {})
