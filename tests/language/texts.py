"""Texts of the project with their places: prose, interface texts, docstrings and names."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SILENCE = re.compile(
    r"(?:#|//|<!--)\s*language: allow ([\w-]+)(?::[ \t]*([^\n]*?))?[ \t]*(?:-->|\n|$)"
)
CODE = re.compile(r"```.*?```|~~~.*?~~~", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
MESSAGE = re.compile(r'^ {2}"(?P<key>[^"]+)":\s+"(?P<text>(?:[^"\\]|\\.)*)",$', re.MULTILINE)

PROPERTIES = {"property", "cached_property"}
"""Decorators of methods whose docstring may be a noun phrase."""


@dataclass(frozen=True)
class Silence:
    """A comment that allows the findings of a rule."""

    line: int
    rule: str
    reason: str


@dataclass(frozen=True)
class Text:
    """A text, the first line of its file that it covers, and the lines where it can be silenced."""

    content: str
    line: int
    lines: range
    kind: str = "prose"
    """`prose`, `cell` of a table, `message`, `docstring`, or `function` for that of a function."""

    @property
    def first_line(self) -> str:
        """The first line of the text."""
        return self.content.partition("\n")[0]


@dataclass(frozen=True)
class Name:
    """The name of a function, class or variable."""

    name: str
    line: int


@dataclass
class Source:
    """The texts, names and silencing comments of a file."""

    path: Path
    texts: list[Text] = field(default_factory=list)
    names: list[Name] = field(default_factory=list)
    """Names of functions and classes."""
    variables: list[Name] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)


def read_source(path: Path, content: str) -> Source:
    """Read the texts of a Markdown file, a Python module, or a catalogue of interface texts."""
    source = Source(path)
    comments = python_comments(content) if path.suffix == ".py" else content
    for match in SILENCE.finditer(comments):
        line = comments.count("\n", 0, match.start()) + 1
        source.silences.append(Silence(line, match[1], (match[2] or "").strip()))
    if path.suffix == ".md":
        source.texts.extend(read_markdown(content))
    elif path.suffix == ".ts":
        source.texts.extend(read_messages(content))
    else:
        read_python(content, source)
    return source


def read_markdown(content: str) -> Iterator[Text]:
    """Yield each paragraph, list item and table cell; code blocks and headings are no prose."""
    content = CODE.sub(blank, COMMENT.sub(blank, content))
    begin, paragraph = 1, list[str]()

    def ended() -> Iterator[Text]:
        if any(line.strip() for line in paragraph):
            lines = range(begin - 1, begin + len(paragraph))
            yield Text("\n".join(paragraph), begin, lines)
        paragraph.clear()

    for number, line in enumerate(content.split("\n"), 1):
        if line.startswith("|"):
            yield from ended()
            for cell in line.strip("| ").split("|"):
                yield Text(cell.strip(), number, range(number - 1, number + 1), "cell")
            continue
        is_item = re.match(r"\s*(?:[-*]|\d+\.)\s", line)
        if is_item or not line.strip() or line.startswith(("#", "---")):
            yield from ended()
        if line.strip() and not line.startswith(("#", "---")):
            if not paragraph:
                begin = number
            paragraph.append(line[is_item.end() :] if is_item else line)
    yield from ended()


def read_messages(content: str) -> Iterator[Text]:
    """Yield each text of a catalogue, with `5` for numbers and a word for other values."""
    for match in MESSAGE.finditer(content):
        line = content.count("\n", 0, match.start()) + 1
        text = re.sub(r"\{\w+\|([^|}]*)\|([^}]*)\}", r"\2", match["text"])
        text = re.sub(r"\{(\w+)\}", lambda value: "5" if value[1] == "count" else "`X`", text)
        yield Text(text, line, range(line - 1, line + 1), "message")


def read_python(content: str, source: Source) -> None:
    """Add the names and docstrings of a module to its source."""
    module = ast.parse(content)
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            source.names.append(Name(node.name, node.lineno))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            source.variables.append(Name(node.id, node.lineno))
            continue
        elif not isinstance(node, ast.Module):
            continue
        docstring = ast.get_docstring(node)
        if not docstring:
            continue
        place = node.body[0]
        begin = 0 if isinstance(node, ast.Module) else node.lineno - 1
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(
            isinstance(decorator, ast.Name) and decorator.id in PROPERTIES
            for decorator in node.decorator_list
        )
        end = (place.end_lineno or place.lineno) + 1
        kind = "function" if is_function else "docstring"
        source.texts.append(Text(docstring, place.lineno, range(begin, end), kind))


def python_comments(content: str) -> str:
    """Return the comments of a module, each in its line; strings with `#` are none."""
    if "language: allow" not in content:
        return ""
    lines = [""] * (content.count("\n") + 2)
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = token.string
    return "\n".join(lines)


def blank(match: re.Match[str]) -> str:
    """Replace text by as many line breaks as it has."""
    return "\n" * match[0].count("\n")
