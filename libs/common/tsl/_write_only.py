"""Write-only members (access mode W): values that a thing receives but never returns."""

import re
from collections.abc import Callable, Container, Iterator, Mapping
from itertools import zip_longest
from typing import Any

import msgspec

from libs.common.tsl._node import Node, build_tree
from libs.common.tsl.document import TslDocument, ids_from_keys
from libs.common.tsl.faults import Fault

MASK = "******"
"""Replaces write-only values in texts for users."""

MIN_SECRET_LENGTH = 3
"""Minimum length of a secret that is also searched within words; shorter ones would match by
chance."""

MAX_MASKED_LEVELS = 64
"""Maximum levels of objects and arrays that are searched for names; deeper values are masked."""

UNKNOWN_REASON = "is not known"
"""The reason of a fault for a property or member that a TSL lacks."""

_ABSENT: Any = object()


def readable_values(document: TslDocument, values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` of a thing without write-only ones, without compiling its TSL."""
    tree = build_tree(ids_from_keys(document).properties)
    return omit_write_only({key: node for key, node in tree.items() if node.conceals}, values)


def without_write_only(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Return the tree without its write-only members."""
    return {key: _readable_view(node) for key, node in nodes.items() if node.readable}


def _readable_view(node: Node) -> Node:
    if not node.conceals:
        return node
    element = _readable_view(node.element) if node.element else None
    return msgspec.structs.replace(node, members=without_write_only(node.members), element=element)


def omit_write_only(nodes: Mapping[str, Node], values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` without write-only members; `nodes` are those that conceal."""
    return _replace_values(nodes, values, lambda value: _ABSENT)


def mask_write_only(nodes: Mapping[str, Node], values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` with `MASK` for write-only members."""
    return _replace_values(nodes, values, lambda value: MASK)


def write_only_paths(nodes: Mapping[str, Node], above: str = "") -> list[str]:
    """Return the paths of the outermost write-only members, without array indexes."""
    paths: list[str] = []
    for key, node in nodes.items():
        if not node.conceals:
            continue
        inner = node
        while inner.readable and inner.element is not None:
            inner = inner.element
        if inner.readable:
            paths += write_only_paths(inner.members, f"{above}{key}.")
        else:
            paths.append(f"{above}{key}")
    return paths


def members_by_path(nodes: Mapping[str, Node], above: str = "") -> dict[str, Node]:
    """Return the members that conceal, at every level outside of ARRAYs, by path."""
    members: dict[str, Node] = {}
    for key, node in nodes.items():
        if node.conceals:
            members[f"{above}{key}"] = node
            members |= members_by_path(node.members, f"{above}{key}.")
    return members


def write_only_names(hidden: Mapping[str, Node]) -> frozenset[str]:
    """Return the possible names of write-only members, in lower case.

    These are their paths and, for outermost write-only members, also their last part.
    """
    paths = {path for path, node in hidden.items() if not node.readable}
    outermost = {path for path in paths if path.rpartition(".")[0] not in paths}
    names = paths | {path.rpartition(".")[2] for path in outermost}
    return frozenset(name.casefold() for name in names)


def mask_named_values(names: Container[str], value: Any, levels: int = MAX_MASKED_LEVELS) -> Any:
    """Return a value with `MASK` for the members in `names`, and below `levels` levels."""
    if not isinstance(value, dict | list):
        return value
    if not levels:
        return MASK
    if isinstance(value, list):
        return [mask_named_values(names, item, levels - 1) for item in value]
    return {
        key: MASK if key.casefold() in names else mask_named_values(names, item, levels - 1)
        for key, item in value.items()
    }


def list_hidden_texts(whole: Any, readable: Any) -> set[str]:
    """Return the scalars of `whole` that its readable part `readable` lacks, as texts."""
    if isinstance(whole, dict) and isinstance(readable, dict):
        pairs = [(value, readable.get(key)) for key, value in whole.items()]
    elif isinstance(whole, list) and isinstance(readable, list):
        pairs = list(zip_longest(whole, readable))
    else:
        return set() if whole == readable else set(_texts(whole))
    return set().union(*(list_hidden_texts(*pair) for pair in pairs))


def mask_text(text: str, secrets: set[str]) -> str:
    """Return `MASK` if a text contains any of `secrets`, ignoring case; else the text."""
    folded = text.casefold()
    return MASK if any(_occurs(secret.casefold(), folded) for secret in secrets) else text


def _occurs(secret: str, text: str) -> bool:
    if len(secret) >= MIN_SECRET_LENGTH:
        return secret in text
    start = text.find(secret)
    while start >= 0:
        end = start + len(secret)
        if not re.search(r"\w", text[max(start - 1, 0) : start] + text[end : end + 1]):
            return True
        start = text.find(secret, start + 1)
    return False


def mask_fault(fault: Fault) -> Fault:
    """Return the fault with a masked value."""
    if "value" not in fault.args:
        return fault
    return msgspec.structs.replace(fault, args={**fault.args, "value": MASK})


def conceal_fault(names: Container[str], properties: Mapping[str, Any], fault: Fault) -> Fault:
    """Return a fault of `properties`, in which values of members in `names` are masked.

    A fault of an unknown property that has one of `names` gets the code `write_only`.
    """
    if fault.reason == UNKNOWN_REASON:
        path = fault.path.partition(".")[2]
        value = properties.get(path)
        is_named = any(name.casefold() in names for name in (path, path.rpartition(".")[2]))
        if is_named or mask_named_values(names, value) != value:
            return msgspec.structs.replace(fault, code="write_only")
    if "value" not in fault.args:
        return fault
    masked = mask_named_values(names, fault.args["value"])
    return msgspec.structs.replace(fault, args={**fault.args, "value": masked})


def _replace_values(
    nodes: Mapping[str, Node], values: dict[str, Any], replace: Callable[[Any], Any]
) -> dict[str, Any]:
    replaced = {
        key: _value(nodes[key], value, replace) if key in nodes else value
        for key, value in values.items()
    }
    return {key: value for key, value in replaced.items() if value is not _ABSENT}


def _value(node: Node, value: Any, replace: Callable[[Any], Any]) -> Any:
    if not node.conceals:
        return value
    if node.readable and isinstance(value, dict) and node.members:
        return _replace_values(node.members, value, replace)
    if node.readable and isinstance(value, list) and node.element:
        return [_value(node.element, item, replace) for item in value]
    return replace(value)  # also values of a wrong type, whose content is unknown


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        if value.strip():
            yield value
            yield msgspec.json.encode(value)[1:-1].decode()
    elif not isinstance(value, bool) and value is not None:
        yield str(value)
        if isinstance(value, float) and value.is_integer():
            yield str(int(value))
