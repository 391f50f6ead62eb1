"""Shapes: what devices of the open product have reported, so that it can be shown.

Their TSL declares nothing. Ingest notes the paths that come, with a type each; devices that
send the same share one shape and name it in their document. To all others a shape is what a TSL
version is to other products: the number of a member is its place in the list, which only grows.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from libs.common.things import LAST_DECLARED, ValueType
from services.device.members.member import Member, MemberSet

Shape = dict[str, ValueType]
"""Paths in the order of their numbers, from 1."""

LONGEST_PATH = 512
"""Characters; what has a longer path has no entity, so that a shape fits in a document."""

_WIDER: dict[frozenset[str], ValueType] = {frozenset(("LONG", "DOUBLE")): "DOUBLE"}
"""Types that have another one in common; all others have STRING."""


def reported_types(properties: Mapping[str, Any]) -> Iterator[tuple[str, ValueType]]:
    """Path and type of everything in a report that is an entity."""
    for name, value in properties.items():
        yield name, _type_of(value)
        if isinstance(value, Mapping):
            yield from _children(name, value)


def _children(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, ValueType]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _children(f"{path}.{name}", value)
        else:
            yield f"{path}.{name}", _type_of(value)


def _type_of(value: Any) -> ValueType:
    match value:
        case bool():
            return "BOOLEAN"
        case int():
            return "LONG"
        case float():
            return "DOUBLE"
        case str():
            return "STRING"
    return "OBJECT"


def grown(shape: Shape, found: Iterable[tuple[str, ValueType]], most: int = LAST_DECLARED) -> Shape:
    """`shape` with what was found, up to `most` paths; the very same one when it has it all.

    New paths follow in alphabetical order, so that devices of a kind share their shapes. A
    type only widens. What there is no room for has no entity.
    """
    changes: Shape = {}
    for path, kind in found:
        known = changes.get(path) or shape.get(path)
        if known is None and len(path) <= LONGEST_PATH:
            changes[path] = kind
        elif known is None:
            continue
        elif kind != known:
            wider = _WIDER.get(frozenset((known, kind)), "STRING")
            if wider != known:
                changes[path] = wider
    new = sorted(path for path in changes if path not in shape)[
        : max(0, min(most, LAST_DECLARED) - len(shape))
    ]
    if not new and changes.keys().isdisjoint(shape):
        return shape
    kept = {path: changes.get(path, kind) for path, kind in shape.items()}
    return kept | {path: changes[path] for path in new}


def within(shape: Shape, properties: Mapping[str, Any]) -> dict[str, Any]:
    """What of reported properties has an entity, or belongs to one."""
    return {
        name: _within(shape, name, value) for name, value in properties.items() if name in shape
    }


def _within(shape: Shape, path: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {
        name: _within(shape, f"{path}.{name}", one)
        for name, one in value.items()
        if isinstance(one, Mapping) or f"{path}.{name}" in shape
    }


def hash_of(shape: Shape) -> str:
    """The id of a shape."""
    return hashlib.sha256(msgspec.json.encode(list(shape.items()))).hexdigest()[:32]


def members_of_shape(shape: Shape) -> MemberSet:
    """The members of a device of this shape; all can be written, as its TSL is open."""
    return MemberSet(
        Member(
            number=number,
            path=path,
            type="PROPERTY",
            name=path.rpartition(".")[2],
            value_type=kind,
            access_mod="RW",
            parent=path.partition(".")[0] if "." in path else None,
        )
        for number, (path, kind) in enumerate(shape.items(), 1)
    )
