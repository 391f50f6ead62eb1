"""Types that nodes declare for what they are given and put out. No I/O."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from services.workflow.errors import NodeFailed
from services.workflow.expressions.references import as_text
from services.workflow.nodes.base import Fault

DeclaredType = Literal["LONG", "DOUBLE", "BOOLEAN", "STRING", "OTHER"]
"""`OTHER` is anything: editors have it for outputs."""

VariableName = Annotated[str, msgspec.Meta(min_length=1, max_length=50)]


class Output(msgspec.Struct, rename="camel"):
    """One value of an output that the nodes after it can refer to."""

    name: VariableName
    type: DeclaredType = "STRING"


def check_outputs(declared: Iterable[Output], output: Any) -> None:
    """Raise `NodeFailed` when a declared value of a map has another type."""
    if not isinstance(output, Mapping):
        return
    for one in declared:
        if one.name in output and not fits(one.type, output[one.name]):
            value = as_text(output[one.name])
            raise NodeFailed(f"The payload {one.name} value type is invalid, value is {value:.200}")


def sample(kind: DeclaredType) -> Any:
    """A value of a type, for who cannot know another one."""
    samples: dict[DeclaredType, Any] = {"LONG": 0, "DOUBLE": 0.0, "BOOLEAN": False, "STRING": ""}
    return samples.get(kind)


def fits(kind: DeclaredType, value: Any) -> bool:
    """Whether a value is of a type; nothing fits every one."""
    if value is None or kind == "OTHER":
        return True
    if kind in ("LONG", "DOUBLE"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, bool if kind == "BOOLEAN" else str)


def taken(kind: DeclaredType, name: str, value: Any) -> Any:
    """A value that was sent for an input, as its type; numbers may come as text.

    Raises `NodeFailed`.
    """
    if fits(kind, value):
        return value
    try:
        if kind in ("LONG", "DOUBLE", "BOOLEAN"):
            wanted = {"LONG": int, "DOUBLE": float, "BOOLEAN": bool}[kind]
            return msgspec.convert(value, wanted, strict=False)
        if kind == "STRING" and isinstance(value, bool | int | float):
            return as_text(value)
    except msgspec.ValidationError:
        pass
    raise NodeFailed(f"{name} must be {kind}, not {as_text(value)[:100]}")


def named_twice(field: str, names: Iterable[str]) -> Iterable[Fault]:
    """A fault for each name that is there more than once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield Fault(field, f"{name} is there twice; give each a name of its own")
        seen.add(name)
