"""Names of files and code on the pages about the architecture and the console."""

import re
from pathlib import Path

from tests.unit.docs.test_links import DOCS, ROOT

SERVICES = [
    path for folder in ("libs", "services", "deploy") for path in Path(ROOT / folder).rglob("*.*")
]


def test_the_files_of_the_architecture_exist():
    """Each `….py` and `….lua` in code marks ends the path of an existing file."""
    paths = [f"/{path.relative_to(ROOT)}" for path in SERVICES]
    page = (DOCS / "explanation/architecture.md").read_text()
    named = re.findall(r"`([\w/]+\.(?:py|lua))`", page)
    assert not [name for name in named if not any(path.endswith(f"/{name}") for path in paths)]


def test_the_classes_of_the_architecture_exist():
    """Each class in code marks is a class of the source tree."""
    source = "\n".join(path.read_text() for path in SERVICES if path.suffix == ".py")
    page = (DOCS / "explanation/architecture.md").read_text()
    named = re.findall(r"`([A-Z][a-z]+[A-Z]\w+)(?:\.\w+)?`", page)
    assert named
    assert not [name for name in named if not re.search(rf"^class {name}\b", source, re.MULTILINE)]


def test_the_names_of_the_first_change_exist():
    """Each identifier in code marks of the tutorial exists in the source tree."""
    source = "\n".join(path.read_text() for path in SERVICES if path.suffix == ".py")
    named = re.findall(
        r"`([A-Za-z]\w*[A-Z_]\w*)`", (DOCS / "tutorials/first-change.md").read_text()
    )
    assert named
    assert not [name for name in named if not re.search(rf"\b{name}\b", source)]


def test_the_names_of_the_console_exist():
    """Each component, function and file in the table of shared code exists in `console/src`."""
    sources = [
        path for path in (ROOT / "console/src").rglob("*.*") if "generated" not in path.parts
    ]
    text = "\n".join(
        path.read_text() for path in sources if path.suffix in {".ts", ".svelte", ".js"}
    )
    table = (DOCS / "how-to/console.md").read_text().partition("## Shared code")[2]
    code = " ".join(re.findall(r"`([^`]+)`", table))
    components = set(re.findall(r"<([A-Z]\w+)", code))
    files = set(re.findall(r"[\w./]+\.ts\b", code))
    functions = set(re.findall(r"\b(?:[a-z]\w*\.)?([a-zA-Z]\w+)\(", code))
    stems = {path.stem for path in sources if path.suffix == ".svelte"}
    paths = [str(path) for path in sources]
    assert components <= stems
    assert not [name for name in files if not any(path.endswith(f"/{name}") for path in paths)]
    assert not [name for name in functions if not re.search(rf"\b{name}\b", text)]
