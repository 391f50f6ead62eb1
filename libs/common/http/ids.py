"""Ids in requests: one format for paths, query parameters and bodies.

A numeric id is a JSON integer or a text of 1 to 16 ASCII digits, from 1 to 2^53-1. msgspec alone
would also accept `1.0` and `1e6` as integers, because parameters and JSON bodies are converted
leniently.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from litestar.openapi.spec import Schema
from litestar.openapi.spec.enums import OpenAPIType
from litestar.params import ParameterKwarg, PathParameter
from litestar.plugins import OpenAPISchemaPlugin
from litestar.typing import FieldDefinition

from libs.common.errors import InvalidInput

MAX_ID = 2**53 - 1
MAX_NAMED_ID_LENGTH = 255
"""Maximum characters of an id that is a text."""
_MAX_DIGITS = 16
_ID_RULE = f"must be an id: a whole number from 1 to {MAX_ID}, or 1 to 16 digits as text"


def is_id(value: Any) -> bool:
    """Return whether `value` is a numeric id."""
    return type(value) is int and 1 <= value <= MAX_ID


def try_read_id(value: Any) -> int | None:
    """Return the id in a number or text, or None if `value` is not an id."""
    if type(value) is str and len(value) <= _MAX_DIGITS and value.isascii() and value.isdecimal():
        value = int(value)
    return value if is_id(value) else None


def read_id(value: Any) -> int:
    """Return the id in a number or text; raise `ValueError` if `value` is not an id."""
    id_value = try_read_id(value)
    if id_value is None:
        raise ValueError(_ID_RULE)
    return id_value


def parse_id(value: Any, field: str) -> int:
    """Return the id in the input `field`; raise `InvalidInput` for that field."""
    try:
        return read_id(value)
    except ValueError as error:
        raise InvalidInput(str(error), field=field) from error


class _IdType(type):
    """A metaclass for ids: msgspec checks ids by `isinstance`, which calls `accepts_other`."""

    def __instancecheck__(cls, value: Any) -> bool:
        if (
            type(value) is int and 1 <= value <= MAX_ID
        ):  # first, for speed: bodies may have 100,000 ids
            return True
        return bool(cls.accepts_other(value))  # type: ignore[attr-defined]


class _Id(metaclass=_IdType):
    """A numeric id; its values are plain `int`."""

    schemas = (
        Schema(type=OpenAPIType.INTEGER, minimum=1, maximum=MAX_ID),
        Schema(type=OpenAPIType.STRING, pattern="^[0-9]{1,16}$"),
    )

    @classmethod
    def accepts_other(cls, value: Any) -> bool:
        """Return whether a `value` that is not a numeric id belongs to this type."""
        return False

    @classmethod
    def read(cls, value: Any) -> Any:
        """Return the id in a text or JSON value; raise `ValueError`."""
        return read_id(value)


class _NewId(_Id):
    """A numeric id, or an empty text for a new resource or for no resource."""

    schemas = (_Id.schemas[0], Schema(type=OpenAPIType.STRING, pattern="^[0-9]{0,16}$"))

    @classmethod
    def accepts_other(cls, value: Any) -> bool:
        """Return whether `value` is the empty text."""
        return bool(value == "")


class _NamedId(_Id):
    """An id that is a number or, for example for integrations, a name."""

    schemas = (_Id.schemas[0], Schema(type=OpenAPIType.STRING, max_length=MAX_NAMED_ID_LENGTH))

    @classmethod
    def accepts_other(cls, value: Any) -> bool:
        """Return whether `value` is a name, or 0."""
        if isinstance(value, str):
            return len(value) <= MAX_NAMED_ID_LENGTH
        return type(value) is int and value == 0

    @classmethod
    def read(cls, value: Any) -> Any:
        """Raise `ValueError`: only invalid values are passed to this method.

        Litestar keeps a valid number or name, for which `isinstance` is true, without a conversion.
        """
        raise ValueError(
            f"must be an id: a whole number, or at most {MAX_NAMED_ID_LENGTH} characters"
        )


if TYPE_CHECKING:
    Id = int
    OptionalId = int | Literal[""] | None
    NamedId = int | str
else:
    Id = _Id
    """An id in a body or a query parameter; handlers get an `int`."""
    OptionalId = _NewId | None
    """An id in a body that may be missing, null or empty for a new resource."""
    NamedId = _NamedId
    """An id in a body that is a number or a name, depending on the type of resource."""

PathId = Annotated[Id, PathParameter()]
"""An id in a path declared as `{name:str}`, so that an invalid id is a 400, not a 404."""


def _is_id_type(kind: Any) -> bool:
    return isinstance(kind, _IdType)


def _read(kind: type[_Id], value: Any) -> Any:
    return kind.read(value)


ID_DECODERS = [(_is_id_type, _read)]
"""Decoders of the id types for Litestar."""


def describe_id(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of an id type, as a `schema_hook` of msgspec."""
    if not _is_id_type(kind):
        raise NotImplementedError(f"there is no schema of {kind}")
    return {"oneOf": [schema.to_schema() for schema in kind.schemas]}


class IdSchemas(OpenAPISchemaPlugin):
    """Documents id types in the OpenAPI document."""

    def is_plugin_supported_field(self, field_definition: FieldDefinition) -> bool:
        """Return whether a field has an id type."""
        return _is_id_type(field_definition.annotation)

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: Any) -> Schema:
        """Return the schema: a number in a parameter, a number or text in a body."""
        number, text = field_definition.annotation.schemas
        if isinstance(field_definition.kwarg_definition, ParameterKwarg):
            return Schema(type=number.type, minimum=number.minimum, maximum=number.maximum)
        return Schema(one_of=[number, text])
