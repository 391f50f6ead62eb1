"""The house: who owns what."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import services

ROOT = Path(services.__file__).parent
APART = {"migrations.py"}
"""Modules that change collections of several stores."""


def _opened(module: Path) -> Iterator[str]:
    """The collections that a module opens: `database["name"]`, `mongo.database[NAME]`."""
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Subscript):
            holder = node.value
            name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
            if name.strip("_") == "database":
                opened = node.slice
                if isinstance(opened, ast.Constant) or ast.unparse(opened).isupper():
                    yield ast.unparse(opened).strip("'")


def test_each_collection_has_one_store() -> None:
    """No two modules of a service open the same collection."""
    owners: dict[tuple[str, str], set[str]] = defaultdict(set)
    for module in ROOT.rglob("*.py"):
        service = module.relative_to(ROOT).parts[0]
        for collection in _opened(module):
            if module.name not in APART:
                owners[service, collection].add(str(module.relative_to(ROOT)))

    assert owners
    assert {name: modules for name, modules in owners.items() if len(modules) > 1} == {}


def test_files_have_at_most_400_lines() -> None:
    """A longer file has more than one subject and must be divided."""
    lengths = {
        str(path): len(path.read_text().splitlines())
        for folder in ("services", "libs", "deploy")
        for path in (ROOT.parent / folder).rglob("*.py")
    }
    assert lengths
    assert {name: length for name, length in lengths.items() if length > 400} == {}
