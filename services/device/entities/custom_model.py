"""Model of custom entities: things with one property, event or service.

Their TSL is built from their members, so that values are checked, stored and published like those
of any other thing. No I/O.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from libs.common.contracts.flows import PutFlowService
from libs.common.errors import InvalidInput
from libs.common.things import ValueType
from libs.common.tsl import TslDocument, TslInvalid, parse_document
from libs.common.tsl.limits import MAX_DECLARED_SIZE
from services.device.entities.schemas import MAX_ENUM_OPTIONS, CreateEntity
from services.device.members.members import Member
from services.device.members.values import UnreadableValue, convert_value

ATTRIBUTE_FIELD = "value_attribute"
_NUMERIC_TYPES = ("LONG", "DOUBLE")
_MAX_TEXT_CHARACTERS = 255
_MAX_FRACTION_DIGITS = 15
_MAX_INTEGER = 2**63
_INVALID_MIN_CODE = "entity_attribute_min_invalid"


def validate_attributes(attributes: Mapping[str, Any], value_type: ValueType) -> dict[str, Any]:
    """Return the attributes that a type may have, without blank and unknown ones.

    Raises `InvalidInput` with the name of an invalid attribute.
    """
    attributes = {name: value for name, value in attributes.items() if value not in (None, "")}
    checked: dict[str, Any] = {
        name: _validate_text(name, attributes[name])
        for name in ("unit", "format")
        if name in attributes
    }
    if value_type in _NUMERIC_TYPES:
        for name in ("min", "max"):
            if name in attributes:
                checked[name] = _validate_number(name, attributes[name], whole=value_type == "LONG")
        if "fraction_digits" in attributes:
            checked["fraction_digits"] = _validate_size(
                "fraction_digits", attributes, _MAX_FRACTION_DIGITS
            )
        _check_bounds_order(checked, "min", "max")
    if value_type in ("STRING", "BINARY"):
        for name in ("min_length", "max_length"):
            if name in attributes:
                checked[name] = _validate_size(name, attributes, MAX_DECLARED_SIZE)
        _check_bounds_order(checked, "min_length", "max_length")
    if attributes.get("enum"):
        checked["enum"] = _validate_enum(attributes["enum"], value_type)
    if "optional" in attributes:
        checked["optional"] = _validate_flag("optional", attributes["optional"])
    return checked


def _attribute_error(name: str, reason: str, code: str | None = None) -> InvalidInput:
    return InvalidInput(reason, field=f"{ATTRIBUTE_FIELD}.{name}", code=code)


def _validate_text(name: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT_CHARACTERS:
        raise _attribute_error(name, f"must be a text of at most {_MAX_TEXT_CHARACTERS} characters")
    return value


def _validate_number(name: str, value: Any, *, whole: bool) -> int | float:
    number = convert_value("LONG" if whole else "DOUBLE", value)
    if isinstance(number, UnreadableValue) or abs(number) > _MAX_INTEGER:
        kind = "an integer" if whole else "a number"
        raise _attribute_error(
            name, f"must be {kind}", _INVALID_MIN_CODE if name == "min" else None
        )
    return cast("int | float", number)


def _validate_size(name: str, attributes: Mapping[str, Any], maximum: int) -> int:
    size = int(_validate_number(name, attributes[name], whole=True))
    if not 0 <= size <= maximum:
        raise _attribute_error(name, f"must be from 0 to {maximum}")
    return size


def _check_bounds_order(attributes: Mapping[str, Any], low: str, high: str) -> None:
    if low in attributes and high in attributes and attributes[low] > attributes[high]:
        code = f"entity_attribute_{low}_greater_than_{high}"
        raise _attribute_error(high, f"must not be less than {low}", code)


def _validate_flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise _attribute_error(name, "must be true or false")


def _validate_enum(entries: Any, value_type: ValueType) -> dict[str, str]:
    if value_type not in ("LONG", "STRING"):
        raise _attribute_error("enum", f"is not supported for values of type {value_type}")
    if not isinstance(entries, dict) or len(entries) > MAX_ENUM_OPTIONS:
        raise _attribute_error("enum", f"must be an object of at most {MAX_ENUM_OPTIONS} members")
    for key, label in entries.items():
        if not isinstance(label, str) or len(label) > _MAX_TEXT_CHARACTERS or not key:
            raise _attribute_error(f"enum.{key[:64]}", "must be text, the label of the value")
        if (
            value_type == "LONG"
            and str(_validate_number(f"enum.{key[:64]}", key, whole=True)) != key
        ):
            raise _attribute_error(
                f"enum.{key[:64]}", "must be an integer without a plus sign or leading zeros"
            )
    return dict(entries)


_TSL_TYPE_BY_VALUE_TYPE = {
    "LONG": "LONG",
    "DOUBLE": "DOUBLE",
    "BOOLEAN": "BOOL",
    "STRING": "STRING",
    "BINARY": "STRING",
}


def build_member(body: CreateEntity, number: int) -> Member:
    """Return the member of a request; raise `InvalidInput`."""
    if body.type == "PROPERTY" and body.access_mod is None:
        raise InvalidInput("is required for a property", field="access_mod")
    child = body.parent_identifier is not None
    if child and body.value_type == "OBJECT":
        raise InvalidInput("a child cannot be an OBJECT", field="value_type")
    return Member(
        number=number,
        path=body.identifier if child else "",
        type=body.type,
        name=body.name,
        value_type=body.value_type,
        access_mod=body.access_mod,
        attribute=validate_attributes(body.value_attribute or {}, body.value_type),
        parent="" if child else None,
        description=body.description,
        visible=body.visible is not False,
    )


def build_flow_members(
    request: PutFlowService, before: Iterable[Member], last: int
) -> tuple[list[Member], int]:
    """Return the members of a flow's service, and the highest number of an input.

    `before` are its current members, `last` is their highest number ever.
    """
    numbers = {member.path: member.number for member in before}
    identifier = str(request.flow_id)
    root = CreateEntity(
        identifier=identifier,
        name=request.name,
        type="SERVICE",
        value_type="OBJECT",
        description=request.description or None,
    )
    members = [build_member(root, 0)]
    for entry in request.inputs:
        if entry.identifier not in numbers:
            last += 1
        child = CreateEntity(
            identifier=entry.identifier,
            name=entry.name,
            type="SERVICE",
            value_type=entry.type,
            parent_identifier=identifier,
        )
        members.append(build_member(child, numbers.get(entry.identifier, last)))
    return members, last


def build_tsl(identifier: str, members: Sequence[Member]) -> TslDocument:
    """Return the TSL of members; raise `InvalidInput` for an invalid one."""
    root = next(member for member in members if not member.path)
    children = [member for member in members if member.path]
    raw: dict[str, Any] = {"version": "v1.0", "properties": [], "events": [], "services": []}
    match root.type:
        case "PROPERTY" if root.value_type != "OBJECT" or children:
            raw["properties"] = [
                _build_property(identifier, root),
                *(_build_property(f"{identifier}.{child.path}", child) for child in children),
            ]
        case "EVENT":
            outputs = list(_build_params(identifier, children))
            raw["events"] = [{"id": identifier, "name": root.name, "outputs": outputs}]
        case "SERVICE":
            inputs = list(_build_params(identifier, children))
            raw["services"] = [{"id": identifier, "name": root.name, "inputs": inputs}]
    try:
        return parse_document(raw)
    except TslInvalid as error:
        raise InvalidInput(
            f"results in an invalid TSL: {error}", field="value_attribute"
        ) from error


def _build_property(key: str, member: Member) -> dict[str, Any]:
    access = member.access_mod or "RW"
    return {
        "id": key,
        "name": member.name,
        "accessMode": access,
        "dataSpec": _build_data_spec(member),
    }


def _build_params(owner: str, members: Iterable[Member]) -> Iterable[dict[str, Any]]:
    for member in members:
        spec = _build_data_spec(member)
        if member.type == "SERVICE" and not member.attribute.get("optional"):
            spec.setdefault("validator", {})["required"] = True
        yield {"id": f"{owner}.{member.path}", "name": member.name, "dataSpec": spec}


def _build_data_spec(member: Member) -> dict[str, Any]:
    rules = member.attribute
    if member.value_type == "OBJECT":
        return {"dataType": "STRUCT"}
    spec: dict[str, Any] = {"dataType": _TSL_TYPE_BY_VALUE_TYPE[member.value_type]}
    if "enum" in rules:
        spec |= {"dataType": "ENUM", "mapping": rules["enum"]}
        return spec
    if member.value_type == "BINARY":
        spec["encoding"] = "BASE64"
    elif rules.get("format") == "HEX" and member.value_type == "STRING":
        spec["encoding"] = "HEX"
    validator = {
        "min": rules.get("min"),
        "max": rules.get("max"),
        "minSize": rules.get("min_length"),
        "maxSize": rules.get("max_length"),
    }
    if "fraction_digits" in rules:
        spec["fractionDigits"] = rules["fraction_digits"]
    bounds = {name: value for name, value in validator.items() if value is not None}
    if bounds:
        spec["validator"] = bounds
    return spec
