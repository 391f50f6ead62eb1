"""The rules of the language check, and their findings."""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.language.texts import Source, Text
from tests.node import node

SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n(?=\s*[-*] )")
RULES = Path(__file__).with_name("rules.toml")
SHORTEST = 3
"""Words of a text in which no grammar is checked, such as a cell of a table."""


@dataclass(frozen=True, order=True)
class Finding:
    """A place that breaks a rule."""

    path: Path
    line: int
    rule: str
    message: str
    lines: range = range(0)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


class Rules:
    """The rules of `rules.toml`."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.areas: list[str] = settings["areas"]
        self.grammar: dict[str, Any] = settings["grammar"]
        self._max_words: int = settings["sentences"]["max_words"]
        self._free_form = tuple(settings["docstrings"]["free_form"])
        self._short_areas = tuple(settings["docstrings"]["max_first_line_areas"])
        self._max_first_line: int = settings["docstrings"]["max_first_line"]
        self._not_verbs = frozenset(settings["docstrings"]["not_verbs"])
        self._unsearchable = frozenset(settings["names"]["unsearchable"])
        self._variables = frozenset(settings["names"]["variables"])
        self._constructions = [
            (re.compile(construction["pattern"], re.IGNORECASE), construction["write"])
            for construction in settings["constructions"]
        ]

    @classmethod
    def load(cls) -> "Rules":
        """Read the rules from `rules.toml`."""
        return cls(tomllib.loads(RULES.read_text()))

    def covers(self, path: Path) -> bool:
        """Return whether a path, relative to the project, is in a checked area."""
        return any(
            str(path).startswith(area) if area.endswith("/") else str(path) == area
            for area in self.areas
        )

    def check(self, source: Source) -> Iterator[Finding]:
        """Yield what breaks a rule, without grammar and silences."""
        for text in source.texts:
            yield from self._check_text(source.path, text)
        names = [name for name in source.names if name.name.strip("_") in self._unsearchable]
        for name in names + [name for name in source.variables if name.name in self._variables]:
            message = f"`{name.name}` cannot be searched for. Name what it does or holds."
            lines = range(name.line - 1, name.line + 1)
            yield Finding(source.path, name.line, "name", message, lines)

    def _check_text(self, path: Path, text: Text) -> Iterator[Finding]:
        prose = re.sub(r"`[^`]*`", lambda code: "X" + "\n" * code[0].count("\n"), text.content)
        prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", prose)
        for pattern, write in self._constructions:
            for match in pattern.finditer(prose):
                line = text.line + prose.count("\n", 0, match.start())
                message = f"`{match[0]}` has to be decoded. Write {write}."
                yield Finding(path, line, "construction", message, text.lines)
        begin = 0
        for sentence in SENTENCE_END.split(prose):
            line = text.line + prose.count("\n", 0, begin)
            begin = prose.find(sentence, begin) + len(sentence)
            words = len(sentence.split())
            if words > self._max_words and text.kind != "cell":
                message = (
                    f"{words} words, at most {self._max_words}: {' '.join(sentence.split()[:5])} …"
                )
                yield Finding(path, line, "long-sentence", message, text.lines)
        is_docstring = text.kind in {"function", "docstring"}
        if is_docstring and not str(path).startswith(self._free_form):
            first = text.first_line
            if len(first) > self._max_first_line and str(path).startswith(self._short_areas):
                message = (
                    f"The first line has {len(first)} of at most {self._max_first_line} characters."
                )
                yield Finding(path, text.line, "docstring-length", message, text.lines)
            if text.kind == "function" and first.split()[0].strip("'s,") in self._not_verbs:
                message = f"Begin with a verb, such as `Return` or `Store`: {first}"
                yield Finding(path, text.line, "docstring-verb", message, text.lines)

    def check_grammar(self, sources: list[Source]) -> Iterator[Finding]:
        """Yield what Harper finds in the texts of all sources."""
        texts = [
            (source, text)
            for source in sources
            for text in source.texts
            if len(text.content.split()) > SHORTEST
        ]
        contents = [
            text.first_line if text.kind in {"function", "docstring"} else text.content
            for _, text in texts
        ]
        request = {**self.grammar, "texts": contents}
        wrong = re.compile("|".join(self.grammar["wrong"]))
        for found in json.loads(node("grammar.mjs", text=json.dumps(request))):
            source, text = texts[found["text"]]
            if wrong.match(text.content, found["start"]):
                continue
            line = text.line + text.content.count("\n", 0, found["start"])
            message = f"`{found['problem']}`: {found['message']}"
            yield Finding(source.path, line, found["rule"], message, text.lines)


def silence(source: Source, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings without those that a comment allows, and comments without reason or use."""
    used = set()
    for finding in findings:
        allowed = [
            comment
            for comment in source.silences
            if comment.rule == finding.rule
            and (comment.line in finding.lines or comment.line == finding.line)
        ]
        used.update(allowed)
        if not allowed:
            yield finding
    for comment in source.silences:
        if not comment.reason:
            message = f"Give the reason: `language: allow {comment.rule}: REASON`"
            yield Finding(source.path, comment.line, "silence-reason", message)
        elif comment not in used:
            message = f"`{comment.rule}` finds nothing here. Remove the comment."
            yield Finding(source.path, comment.line, "silence-unused", message)
