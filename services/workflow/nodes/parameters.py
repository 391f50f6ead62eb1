"""Parameters of nodes: base class, display in editors, and validation. No I/O.

A parameter struct extends `Parameters`. msgspec validates types and bounds, `find_faults`
everything else, and `parameter_meta(...)` defines how editors and the catalogue show a field.
Values may be references (`expressions.references`), which `NodeContext.resolve_references` replaces
when the node runs. In `verbatim` fields, each node type decides where references are allowed.

Editors store numbers as text, and null for empty form fields.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import msgspec
from msgspec.inspect import ListType, Metadata, StructType, Type, UnionType, type_info

from services.workflow.errors import NodeFailed
from services.workflow.expressions.references import Reference, format_text

DeclaredType = Literal["LONG", "DOUBLE", "BOOLEAN", "STRING", "OTHER"]
"""`OTHER` is any type; editors use it for outputs."""

VariableName = Annotated[str, msgspec.Meta(min_length=1, max_length=50)]
MAX_KEY_CHARACTERS, MAX_ENTITIES = 1000, 1000
EntityKey = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY_CHARACTERS)]


class ParameterFault(NamedTuple):
    """A fault of a parameter: the field, the reason and what to do."""

    field: str
    """Path of the invalid field, for example `timerSettings.timezone`."""
    reason: str


class CodeParameter(NamedTuple):
    """Code of a user in a parameter."""

    field: str
    language: str
    """Name of the language in the design, a key of `sandbox.runner.LANGUAGES_BY_NAME`."""
    text: str
    variables: Sequence[str]
    """Names of the variables that the run defines: the input arguments and `CONTEXT_VARIABLES`."""


class Parameters(msgspec.Struct, rename="camel", kw_only=True):
    """Base of the parameters of node types in designs."""

    verbatim: ClassVar[frozenset[str]] = frozenset()
    """Fields (in the spelling of designs) where `#{` may be no reference, such as code."""

    secret_destination_path: ClassVar[tuple[str, ...]] = ()
    """Path of the field with the destination of secrets (a host, a URL); empty if no field has it.
    When the destination changes, secrets must be entered again."""

    def find_faults(self) -> Iterable[ParameterFault]:
        """Return faults beyond types and bounds."""
        return ()

    def find_verbatim_references(self) -> Iterable[tuple[str, Reference]]:
        """Return references in `verbatim` fields, each with its field."""
        return ()

    def list_code(self) -> Iterable[CodeParameter]:
        """Return the code of users, whose syntax is checked before a run."""
        return ()

    def list_entity_keys(self) -> Iterable[str]:
        """Return the keys of the entities that the node uses; its author must see them.

        A key may be a pattern, where `*` matches any characters.
        """
        return ()


def parameter_meta(
    title: str,
    description: str = "",
    *,
    ui: str = "",
    ui_group: str = "",
    secret: bool = False,
    output: bool = False,
    **bounds: Any,
) -> msgspec.Meta:
    """Return the display information of a field.

    Use it as in `Annotated[str, parameter_meta("URL", max_length=1000)]`. `ui` is a component of
    existing editors. A `secret` of a step is stored encrypted and not shown again
    (`services.workflow.vault`); a secret of an entry stays in the design. A field with `output`
    declares the outputs of the node. `bounds` are arguments of `msgspec.Meta`.
    """
    extra = {"ui": ui, "uiGroup": ui_group, "secret": secret, "output": output}
    return msgspec.Meta(title=title, description=description, extra=extra, **bounds)


def outputs_meta(description: str, maximum: int) -> msgspec.Meta:
    """Return display information of the list of a node's outputs."""
    return parameter_meta(
        "Outputs", description, ui="paramDefineInput", output=True, max_length=maximum
    )


P = TypeVar("P", bound=Parameters)


class Output(msgspec.Struct, rename="camel"):
    """A declared output of a node, which later nodes can refer to."""

    name: VariableName
    """Key of the value in the output."""
    type: DeclaredType = "STRING"
    """Type of the value; `OTHER` is any type. A value of another type fails the node."""


def check_output_types(declared: Iterable[Output], output: Any) -> None:
    """Raise `NodeFailed` if a declared value of a map has another type."""
    if not isinstance(output, Mapping):
        return
    for declaration in declared:
        name, kind = declaration.name, declaration.type
        if name in output and not has_type(kind, output[name]):
            raise NodeFailed(f"output {name} must be {kind}. Got {format_text(output[name]):.200}.")


def create_sample_value(kind: DeclaredType) -> Any:
    """Return a sample value of a type; None for `OTHER`."""
    samples: dict[DeclaredType, Any] = {"LONG": 0, "DOUBLE": 0.0, "BOOLEAN": False, "STRING": ""}
    return samples.get(kind)


def has_type(kind: DeclaredType, value: Any) -> bool:
    """Return whether a value has a type; None fits all types.

    `LONG` and `DOUBLE` both fit any number.
    """
    if value is None or kind == "OTHER":
        return True
    if kind in ("LONG", "DOUBLE"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, bool if kind == "BOOLEAN" else str)


def convert_input(kind: DeclaredType, name: str, value: Any) -> Any:
    """Convert the value of an input to its type; numbers may be texts.

    Raises `NodeFailed`.
    """
    if has_type(kind, value):
        return value
    try:
        if kind in ("LONG", "DOUBLE", "BOOLEAN"):
            python_type = {"LONG": int, "DOUBLE": float, "BOOLEAN": bool}[kind]
            return msgspec.convert(value, python_type, strict=False)
        if kind == "STRING" and isinstance(value, bool | int | float):
            return format_text(value)
    except msgspec.ValidationError:
        pass
    raise NodeFailed(f"{name} must be {kind}. Got {format_text(value)[:100]}.")


def find_duplicate_names(field: str, names: Iterable[str]) -> Iterable[ParameterFault]:
    """Yield a fault for each repeated name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield ParameterFault(field, f"{name} is repeated; names must be unique")
        seen.add(name)


def require_map(trigger_input: Any, content: str = "") -> Mapping[str, Any]:
    """Return the input of an entry as a map, which is empty for None.

    Raises `NodeFailed` for other types. `content` describes the expected map in the error.
    """
    if trigger_input is None:
        return {}
    if not isinstance(trigger_input, Mapping):
        raise NodeFailed(f"the input must be a map{content}")
    return trigger_input


def convert_parameters(kind: type[P], raw: Mapping[str, Any]) -> P:
    """Return the parameters of a node; raise `msgspec.ValidationError` with the path.

    Numbers may be texts, and null stands for the default of a field. Values of untyped fields
    (values to set, arguments) are unchanged.
    """
    return msgspec.convert(_drop_nulls(raw, _inspect_type(kind)), kind, strict=False)


def convert_if_valid(kind: type[P], raw: Mapping[str, Any] | None) -> P | None:
    """Return the parameters of a node of a draft; None if they are not valid yet."""
    try:
        parsed = convert_parameters(kind, raw or {})
    except msgspec.ValidationError:
        return None
    return None if any(parsed.find_faults()) else parsed


@lru_cache(maxsize=100)
def _inspect_type(kind: type[Parameters]) -> Type:
    return type_info(kind)


def _drop_nulls(value: Any, kind: Type) -> Any:
    """Return `value` without nulls of fields that have defaults."""
    if isinstance(kind, Metadata):
        return _drop_nulls(value, kind.type)
    if isinstance(kind, UnionType):
        for option in kind.types:
            value = _drop_nulls(value, option)
    elif isinstance(kind, ListType) and isinstance(value, list):
        return [_drop_nulls(item, kind.item_type) for item in value]
    elif isinstance(kind, StructType) and isinstance(value, Mapping):
        types = {field.encode_name: field.type for field in kind.fields}
        optional = {field.encode_name for field in kind.fields if not field.required}
        return {
            name: _drop_nulls(item, types[name]) if name in types else item
            for name, item in value.items()
            if item is not None or name not in optional
        }
    return value
