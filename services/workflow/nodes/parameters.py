"""Parameters of nodes: their base, how editors show them, and what they hold. No I/O.

A parameter struct is `Parameters`: msgspec checks its types and bounds, `faults` what types
cannot say, and `parameter(...)` says how an editor shows a field; the catalogue is made from
it. Values may be references (`expressions.references`) wherever the field is not among
`verbatim`; `NodeContext.resolve` replaces them, when the node runs.

Editors keep what a form was given: numbers as text, and null where nothing was filled in.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import msgspec
from msgspec.inspect import ListType, Metadata, StructType, Type, UnionType, type_info

from services.workflow.errors import NodeFailed
from services.workflow.expressions.references import Reference, as_text

DeclaredType = Literal["LONG", "DOUBLE", "BOOLEAN", "STRING", "OTHER"]
"""`OTHER` is anything: editors have it for outputs."""

VariableName = Annotated[str, msgspec.Meta(min_length=1, max_length=50)]
LONGEST_KEY, MOST_ENTITIES = 1000, 1000
EntityKey = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_KEY)]


class Fault(NamedTuple):
    """What is wrong with a parameter, and what to do about it."""

    field: str
    """`timerSettings.timezone`."""
    reason: str


class Code(NamedTuple):
    """A piece of code in a parameter."""

    field: str
    language: str
    """`js` or `python`, in any of its spellings."""
    text: str
    names: Sequence[str]
    """Its variables."""


class Parameters(msgspec.Struct, rename="camel", kw_only=True):
    """Base of the parameters of node types, as designs have them."""

    verbatim: ClassVar[frozenset[str]] = frozenset()
    """Fields (as designs spell them) whose texts hold no references, such as program code."""

    secrets_go_to: ClassVar[tuple[str, ...]] = ()
    """The way to the field that says what secrets are sent to (a host, a URL); nothing when they
    are sent nowhere. With another one there, they have to be typed again."""

    def faults(self) -> Iterable[Fault]:
        """What types and bounds cannot say; nothing when all is well."""
        return ()

    def references(self) -> Iterable[tuple[str, Reference]]:
        """References in `verbatim` fields that hold some, each with its field."""
        return ()

    def code(self) -> Iterable[Code]:
        """Code of people, which has to be readable before it may run."""
        return ()

    def entity_keys(self) -> Iterable[str]:
        """The entities that the node touches: whoever lets the flow run must see them.

        A key may be a pattern with `*`, which stands for any characters.
        """
        return ()


def parameter(
    title: str,
    description: str = "",
    *,
    ui: str = "",
    ui_group: str = "",
    secret: bool = False,
    output: bool = False,
    **bounds: Any,
) -> msgspec.Meta:
    """How an editor shows a field: `Annotated[str, parameter("URL", max_length=1000)]`.

    `ui` is a component that existing editors have. A `secret` is kept encrypted and not shown
    again (`services.workflow.vault`). With `output` it declares what the node puts out, and an
    editor shows it there. `bounds` are those of `msgspec.Meta`.
    """
    extra = {"ui": ui, "uiGroup": ui_group, "secret": secret, "output": output}
    return msgspec.Meta(title=title, description=description, extra=extra, **bounds)


def declared_outputs(description: str, most: int) -> msgspec.Meta:
    """How an editor shows the list of what a node puts out."""
    return parameter("Outputs", description, ui="paramDefineInput", output=True, max_length=most)


P = TypeVar("P", bound=Parameters)


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


def read_input(kind: DeclaredType, name: str, value: Any) -> Any:
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


def duplicate_faults(field: str, names: Iterable[str]) -> Iterable[Fault]:
    """A fault for each name that is there more than once."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield Fault(field, f"{name} is there twice; give each a name of its own")
        seen.add(name)


def read_map(given: Any, holds: str = "") -> Mapping[str, Any]:
    """Return what an entry is given, a map; nothing is an empty one.

    Raises `NodeFailed` for anything else; `holds` says what the map is to have.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise NodeFailed(f"the input must be a map{holds}")
    return given


def read(kind: type[P], raw: Mapping[str, Any]) -> P:
    """The parameters of a node; raise `msgspec.ValidationError`, which says where.

    Numbers may come as text, and null for a field that has a default is that default. What a
    field keeps as it is (values to set, arguments) stays as it is.
    """
    return msgspec.convert(_filled(raw, _known(kind)), kind, strict=False)


def read_valid(kind: type[P], raw: Mapping[str, Any] | None) -> P | None:
    """The parameters of a node of a draft; None while they could not run."""
    try:
        found = read(kind, raw or {})
    except msgspec.ValidationError:
        return None
    return None if any(found.faults()) else found


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
