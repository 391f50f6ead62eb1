"""Where secrets stand in the parameters of nodes. No I/O.

Parameter structs say it themselves (`secret=True`). Those of entries stay in the design: their
author has to read them again (the token of a hook is an address).
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.inspect import Metadata, NoneType, StructType, Type, UnionType, type_info

from services.workflow.graph.design import component_of
from services.workflow.nodes.base import Parameters, Registry, Step

Path = tuple[str, ...]
"""Names from the parameters inwards, as designs spell them."""

HARMLESS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Names of a map of secrets (headers of a request) whose values are none."""


class Place(msgspec.Struct, frozen=True):
    """One secret of a node: `holder[name]` is its text."""

    holder: dict[str, Any]
    name: str
    field: str
    """`parameters.emailConfig.smtpConfig.password`."""
    destination: str
    """What the secret is sent to; empty when it is sent nowhere."""


def places(node: Mapping[str, Any], registry: Registry) -> Iterator[Place]:
    """The secrets of a node of a design; a draft may have anything anywhere."""
    kind = registry.find(component_of(node))
    data = node.get("data")
    parameters = data.get("parameters") if isinstance(data, dict) else None
    if not isinstance(kind, Step) or not isinstance(parameters, dict):
        return
    destination = _destination(parameters, kind.parameters.secrets_go_to)
    struct: type[Parameters] = kind.parameters
    for path in secret_paths(struct):
        holder, name = _at(parameters, path[:-1]), path[-1]
        field = ".".join(("parameters", *path))
        value = holder.get(name) if isinstance(holder, dict) else None
        if isinstance(value, dict):
            for key in value:
                if key.lower() not in HARMLESS:
                    yield Place(value, key, f"{field}.{key:.60}", destination)
        elif isinstance(holder, dict) and isinstance(value, str):
            yield Place(holder, name, field, destination)


@lru_cache(maxsize=100)
def secret_paths(parameters: type[Parameters]) -> tuple[Path, ...]:
    """The fields that are marked as secret, at any depth."""
    return tuple(_paths(type_info(parameters), ()))


def _paths(kind: Type, path: Path) -> Iterator[Path]:
    if isinstance(kind, UnionType):
        for one in kind.types:
            if not isinstance(one, NoneType):
                yield from _paths(one, path)
    elif isinstance(kind, Metadata):
        if (kind.extra or {}).get("secret"):
            yield path
        else:
            yield from _paths(kind.type, path)
    elif isinstance(kind, StructType):
        for field in kind.fields:
            yield from _paths(field.type, (*path, field.encode_name))


def _at(value: Any, path: Path) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _destination(parameters: dict[str, Any], path: Path) -> str:
    """The host, or the beginning of a URL up to its path."""
    found = _at(parameters, path) if path else ""
    text = found.strip() if isinstance(found, str) else ""
    return "/".join(text.split("/")[:3]) if "://" in text else text
