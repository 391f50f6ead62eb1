"""STRUCTs in part: in a report, and in a write, which is completed from what is in force."""

from collections.abc import Mapping
from typing import Any

import msgspec

from libs.common.tsl._check import check_value
from libs.common.tsl._node import Node
from libs.common.tsl.faults import Fault


def writable_view(node: Node, *, whole: bool = False) -> Node:
    """Give `node` without its read-only members: the shape of a write.

    A write-only member of a STRUCT is never required, since nobody can complete it; in an
    element of an ARRAY, which is written `whole`, it may be.
    """
    members = {
        key: writable_view(item, whole=whole) for key, item in node.members.items() if item.writable
    }
    element = writable_view(node.element, whole=True) if node.element else None
    required = node.required and (node.readable or whole)
    return msgspec.structs.replace(
        node, members=members, element=element, required=required, readable=True
    )


def settable_view(node: Node) -> Node:
    """Return `node` with all members optional and readable, for things that are not devices."""
    members = {key: settable_view(item) for key, item in node.members.items()}
    element = _all_readable(node.element) if node.element else None
    return msgspec.structs.replace(
        node, members=members, element=element, required=False, readable=True
    )


def _all_readable(node: Node) -> Node:
    members = {key: _all_readable(item) for key, item in node.members.items()}
    element = _all_readable(node.element) if node.element else None
    return msgspec.structs.replace(node, members=members, element=element, readable=True)


def accepted(given: object, checked: object) -> Any:
    """Return the checked values that were sent: only the members of a STRUCT that `given` has."""
    if not isinstance(given, dict) or not isinstance(checked, dict):
        return checked
    return {key: accepted(item, checked[key]) for key, item in given.items() if key in checked}


def partial_view(node: Node) -> Node:
    """Give `node` as a report may have it: a STRUCT in part, but for those in an ARRAY.

    What is missing is laid over nothing: the latest value keeps it. An ARRAY is replaced.
    """
    members = {key: partial_view(item) for key, item in node.members.items()}
    return msgspec.structs.replace(node, members=members, required=False)


def without_read_only(node: Node, given: object, path: str, faults: list[Fault]) -> Any:
    """Give `given` without its read-only members, adding a fault for each of them."""
    if node.kind == "ARRAY" and node.element and isinstance(given, list):
        element = node.element
        return [
            without_read_only(element, item, f"{path}[{at}]", faults)
            for at, item in enumerate(given)
        ]
    if node.kind != "STRUCT" or not isinstance(given, dict):
        return given
    kept: dict[str, Any] = {}
    for key, item in given.items():
        member = node.members.get(key)
        if member is None:
            kept[key] = item
        elif not member.writable:
            faults.append(Fault(f"{path}.{key}", "is read-only"))
        else:
            kept[key] = without_read_only(member, item, f"{path}.{key}", faults)
    return kept


def merged(node: Node, current: object, given: object) -> Any:
    """Lay `given` over `current`, for STRUCTs member by member.

    Of `current` only what `node` knows and accepts is taken, so that values stored under
    an older TSL never make a write fail. What is wrong in `given` stays, to be refused.
    """
    if node.kind != "STRUCT" or not isinstance(given, dict):
        return given
    known: Mapping[str, object] = current if isinstance(current, dict) else {}
    whole = dict(given)
    for key, member in node.members.items():
        if key in given:
            whole[key] = merged(member, known.get(key), given[key])
        elif key in known:
            whole.update(still_valid(key, member, known[key]))
    return whole


def still_valid(key: str, node: Node, value: object) -> dict[str, Any]:
    """Give `{key: value}` as far as `node` accepts it, else nothing."""
    faults: list[Fault] = []
    known = merged(node, value, {}) if node.kind == "STRUCT" else _known(node, value)
    checked = check_value(node, known, key, faults)
    return {} if faults or checked == {} else {key: checked}


def _known(node: Node, value: object) -> Any:
    """Give `value` without the members that `node` lacks, being read-only or gone.

    What is wrong in it stays: elements of an ARRAY count together or not at all.
    """
    if node.kind == "ARRAY" and node.element and isinstance(value, list):
        return [_known(node.element, item) for item in value]
    if node.kind == "STRUCT" and isinstance(value, dict):
        members = node.members
        return {key: _known(members[key], item) for key, item in value.items() if key in members}
    return value
