"""The language check of `make lint`."""

from pathlib import Path

import pytest

from tests.language.checks import Rules, silence
from tests.language.texts import read_source

RULES = Rules.load()


def found(path: str, content: str) -> list[str]:
    """Return the findings of the own rules and of silencing comments, as `LINE RULE`."""
    source = read_source(Path(path), content)
    return [f"{one.line} {one.rule}" for one in sorted(silence(source, RULES.check(source)))]


@pytest.mark.parametrize(
    "sentence",
    [
        "The key dies at once.",
        "Whoever signs in is asked.",
        "It stands at the top.",
        "Nothing has come of it.",
        "The values are read anew.",
        "This is what was stored.",
    ],
)
def test_odd_constructions_are_found(sentence: str) -> None:
    """A sentence that readers have to decode is a finding in each kind of file."""
    assert found("a.md", sentence) == ["1 construction"]
    assert found("a.py", f'"""{sentence}"""') == ["1 construction"]
    assert found("en.ts", f'  "key": "{sentence}",') == ["1 construction"]


def test_plain_text_has_no_findings() -> None:
    """Plain sentences, code and headings pass."""
    content = "# What is it\n\nDevices report values.\n\n```\ntold anew\n```\n\nSend `told` once.\n"
    assert found("a.md", content) == []


def test_findings_name_the_line() -> None:
    """A finding in a later line of a paragraph, an item or a table is reported there."""
    content = "First line,\nthen it dies.\n\n- one\n- told\n\n| a | told |\n"
    assert found("a.md", content) == ["2 construction", "5 construction", "7 construction"]


def test_long_sentences_are_found() -> None:
    """A sentence of more than 30 words is a finding; two short ones are none."""
    assert found("a.md", f"{'word ' * 31}.") == ["1 long-sentence"]
    assert found("a.md", f"{'word ' * 20}. {'Word ' * 20}.") == []


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    """`The device` is a finding for a function, and right for a class or a property."""
    assert found("a.py", 'def f():\n    """The device."""\n') == ["2 docstring-verb"]
    assert found("a.py", 'def f():\n    """Return the device."""\n') == []
    assert found("a.py", 'class F:\n    """The device."""\n') == []
    for decorator in ("property", "cached_property"):
        assert found("a.py", f'@{decorator}\ndef f(self):\n    """The device."""\n') == []


def test_first_lines_of_docstrings_are_short() -> None:
    """The first line has at most 80 characters."""
    assert found("deploy/a.py", f'"""{"x" * 81}"""') == ["1 docstring-length"]
    assert found("deploy/a.py", f'"""{"x" * 80}"""') == []


def test_names_can_be_searched_for() -> None:
    """A function called `of` and a variable called `one` are findings; longer names are none."""
    assert found("a.py", "def of(): ...\nclass _Told: ...\ndef of_tenant(): ...\n") == ["1 name"]
    assert found("a.py", "one = 1\none_day = 2\n") == ["1 name"]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("a.md", "<!-- language: allow construction: quotes the broker -->\nThe key dies.\n"),
        (
            "a.py",
            'def f():\n    # language: allow docstring-verb: for --help\n    """The tool."""\n',
        ),
        ("a.py", "def of(): ...  # language: allow name: the library calls it\n"),
        ("en.ts", '  // language: allow construction: a quotation\n  "key": "It dies",'),
    ],
)
def test_a_reason_silences_a_finding(path: str, content: str) -> None:
    """A comment with the rule and a reason keeps a text."""
    assert found(path, content) == []


def test_a_silencing_comment_needs_a_reason() -> None:
    """Without a reason the comment itself is a finding."""
    assert found("a.md", "<!-- language: allow construction -->\nIt dies.\n") == [
        "1 silence-reason"
    ]


def test_a_silencing_comment_needs_a_finding() -> None:
    """A comment that silences nothing, or another rule, is a finding."""
    content = "<!-- language: allow name: a reason -->\nIt dies.\n"
    assert found("a.md", content) == ["1 silence-unused", "2 construction"]


def test_grammar_is_checked() -> None:
    """Harper finds a repeated word, and leaves inline code alone."""
    source = read_source(Path("a.md"), "A device.\n\nThe device\nis is online, `no no`.\n")
    assert [(one.line, one.rule) for one in RULES.check_grammar([source])] == [(4, "RepeatedWords")]


def test_values_of_interface_texts_are_filled_in() -> None:
    """A placeholder is no grammar mistake, and a plural is checked as one text."""
    content = '  "key": "{count} {count|device|devices} of {name}",'
    [text] = read_source(Path("en.ts"), content).texts
    assert text.content == "5 devices of `X`"
