"""Keeps components of the same name apart when they are not the same."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

Document = dict[str, Any]
Key = tuple[str, str]
"""Section and name of a component: `("schemas", "Device")`."""

_PREFIX = "#/components/"


def apart(documents: Mapping[str, Document]) -> dict[str, Document]:
    """Copies of the documents whose components clash no more.

    A component that several services define alike stays one. One that differs, or that
    refers to one that differs, gets its service's name in front, in each of them.
    """
    clashing = _clashing(documents)
    return {
        service: _renamed(service, document, clashing) for service, document in documents.items()
    }


def _components(document: Document) -> Iterator[tuple[Key, Any]]:
    for section, entries in document.get("components", {}).items():
        for name, entry in entries.items():
            yield (section, name), entry


def _clashing(documents: Mapping[str, Document]) -> set[Key]:
    definitions: dict[Key, list[Any]] = defaultdict(list)
    for document in documents.values():
        for key, entry in _components(document):
            definitions[key].append(entry)
    shared = {key: entries for key, entries in definitions.items() if len(entries) > 1}
    clashing = {
        key for key, entries in shared.items() if any(entry != entries[0] for entry in entries)
    }
    grown = True
    while grown:
        reached = {key for key, entries in shared.items() if set(references(entries)) & clashing}
        grown = not reached <= clashing
        clashing |= reached
    return clashing


def references(node: Any) -> Iterator[Key]:
    """The components that something refers to."""
    if isinstance(node, dict):
        target = node.get("$ref")
        if isinstance(target, str) and target.startswith(_PREFIX):
            section, _, name = target.removeprefix(_PREFIX).partition("/")
            yield section, name
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def _renamed(service: str, document: Document, clashing: set[Key]) -> Document:
    names = {key: f"{service.capitalize()}{key[1]}" for key in clashing}
    document = _redirect(deepcopy(document), names)
    for section, entries in document.get("components", {}).items():
        document["components"][section] = {
            names.get((section, name), name): entry for name, entry in entries.items()
        }
    return document


def _redirect(node: Any, names: Mapping[Key, str]) -> Any:
    if isinstance(node, list):
        return [_redirect(value, names) for value in node]
    if not isinstance(node, dict):
        return node
    redirected = {key: _redirect(value, names) for key, value in node.items()}
    for section, name in references({"$ref": node.get("$ref")}):
        if (section, name) in names:
            redirected["$ref"] = f"{_PREFIX}{section}/{names[section, name]}"
    return redirected
