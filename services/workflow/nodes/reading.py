"""Reads the parameters of nodes as editors write them. No I/O.

Editors keep what a form was given: numbers as text, and null where nothing was filled in.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec.inspect import ListType, Metadata, StructType, Type, UnionType, type_info

from services.workflow.nodes.base import Parameters

P = TypeVar("P", bound=Parameters)


def read(kind: type[P], raw: Mapping[str, Any]) -> P:
    """The parameters of a node; raise `msgspec.ValidationError`, which says where.

    Numbers may come as text, and null for a field that has a default is that default. What a
    field keeps as it is (values to set, arguments) stays as it is.
    """
    return msgspec.convert(_filled(raw, _known(kind)), kind, strict=False)


@lru_cache(maxsize=100)
def _known(kind: type[Parameters]) -> Type:
    return type_info(kind)


def _filled(value: Any, kind: Type) -> Any:
    """`value` without the nulls that stand for defaults."""
    if isinstance(kind, Metadata):
        return _filled(value, kind.type)
    if isinstance(kind, UnionType):
        for one in kind.types:
            value = _filled(value, one)
    elif isinstance(kind, ListType) and isinstance(value, list):
        return [_filled(one, kind.item_type) for one in value]
    elif isinstance(kind, StructType) and isinstance(value, Mapping):
        types = {one.encode_name: one.type for one in kind.fields}
        optional = {one.encode_name for one in kind.fields if not one.required}
        return {
            name: _filled(one, types[name]) if name in types else one
            for name, one in value.items()
            if one is not None or name not in optional
        }
    return value
