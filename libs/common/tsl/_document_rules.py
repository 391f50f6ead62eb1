"""Checks of a document's properties and parameters, and of their relations.

Rules that do not apply to a type (a `minSize` of an INT) are kept and ignored, as decoders of
vendors do; only contradictions are faults. The parent of a member is a prefix of its id, so cycles
are impossible.
"""

import json
from collections.abc import Sequence

from libs.common.tsl._check import check_value
from libs.common.tsl._node import find_number_bounds, value_node
from libs.common.tsl.document import (
    ACCESS_MODES,
    CONTAINER_TYPES,
    DATA_TYPES,
    ENCODINGS,
    ITEM_KEY,
    NUMBER_TYPES,
    DataSpec,
    PropertyOrParamSpec,
    PropertySpec,
    Validator,
)
from libs.common.tsl.faults import Fault, Faults
from libs.common.tsl.limits import MAX_DECLARED_SIZE, MAX_DEPTH, MAX_TEXT_LENGTH, find_key_fault

_MAX_DIGITS = 15
_BOOL_BY_TEXT = {"true": True, "1": True, "false": False, "0": False}
_CHARACTERS_PER_UNIT_BY_ENCODING = {"HEX": 2, "BASE64": 4}


def check_spec(spec: DataSpec, path: str, faults: Faults) -> None:
    """Check a `dataSpec` with normalised spellings."""
    if spec.data_type not in DATA_TYPES:
        reason = f"must be one of {', '.join(sorted(DATA_TYPES))}"
        faults.add(f"{path}.dataType", reason if spec.data_type else "is required")
    if spec.element_data_type and spec.element_data_type not in DATA_TYPES:
        faults.add(f"{path}.elementDataType", f"must be one of {', '.join(sorted(DATA_TYPES))}")
    _check_scale(spec, path, faults)
    _check_encoding(spec, path, faults)
    _check_mapping(spec, path, faults)
    if spec.validator:
        _check_range(spec, spec.validator, f"{path}.validator", faults)
        _check_sizes(spec, spec.validator, f"{path}.validator", faults)
    if spec.default_value is not None and spec.data_type in DATA_TYPES - CONTAINER_TYPES:
        _check_default(spec, path, faults)


def scalar_kind(spec: DataSpec) -> str:
    """Return the type that the rules apply to: for an ARRAY, the type of its elements."""
    return spec.element_data_type or "" if spec.data_type == "ARRAY" else spec.data_type


def _check_scale(spec: DataSpec, path: str, faults: Faults) -> None:
    if spec.fraction_digits is not None and not 0 <= spec.fraction_digits <= _MAX_DIGITS:
        faults.add(f"{path}.fractionDigits", f"must be from 0 to {_MAX_DIGITS}")
    if spec.coefficient == 0:
        faults.add(f"{path}.coefficient", "must not be 0")


def _check_encoding(spec: DataSpec, path: str, faults: Faults) -> None:
    if spec.encoding and spec.encoding not in ENCODINGS:
        faults.add(f"{path}.encoding", f"must be one of {', '.join(sorted(ENCODINGS))}")
    elif spec.encoding and scalar_kind(spec) != "STRING":
        faults.add(f"{path}.encoding", "is for STRING only")


def _check_mapping(spec: DataSpec, path: str, faults: Faults) -> None:
    keys = list(spec.mapping or {})
    kind = scalar_kind(spec)
    if spec.data_type == "ENUM" and not keys:
        faults.add(f"{path}.mapping", "is required for an ENUM")
    if "" in keys:
        faults.add(f"{path}.mapping", "must not have a blank key")
    if kind != "BOOL":
        return
    truths = [_BOOL_BY_TEXT.get(key.lower()) for key in keys]
    if None in truths:
        faults.add(f"{path}.mapping", "must have the keys true and false, or 1 and 0, for a BOOL")
    elif len(set(truths)) < len(truths):
        faults.add(f"{path}.mapping", "must not have two keys for the same value")


def _check_range(spec: DataSpec, rules: Validator, path: str, faults: Faults) -> None:
    if rules.min is not None and rules.max is not None and rules.min > rules.max:
        faults.add(f"{path}.min", "exceeds max")
    elif scalar_kind(spec) in NUMBER_TYPES:
        low, high = find_number_bounds(scalar_kind(spec), rules)
        if low is not None and high is not None and low > high:
            place = f"{path}.min" if rules.max is None else f"{path}.max"
            faults.add(place, f"permits no {scalar_kind(spec)}")


def _check_sizes(spec: DataSpec, rules: Validator, path: str, faults: Faults) -> None:
    low, high = rules.min_size, rules.max_size
    for name, size, maximum in (
        ("minSize", low, MAX_TEXT_LENGTH),
        ("maxSize", high, MAX_DECLARED_SIZE),
    ):
        if size is not None and not 0 <= size <= maximum:
            faults.add(f"{path}.{name}", f"must be from 0 to {maximum}")
    if low is not None and high is not None and low > high:
        faults.add(f"{path}.minSize", "exceeds maxSize")
    elif spec.data_type == "STRING" and high is not None:
        unit = _CHARACTERS_PER_UNIT_BY_ENCODING.get(spec.encoding or "", 1)
        if high // unit * unit < (low or 0):
            faults.add(f"{path}.maxSize", f"permits no {spec.encoding} text")


def _check_default(spec: DataSpec, path: str, faults: Faults) -> None:
    wrong: list[Fault] = []
    if any(faults.covers(f"{path}.{name}") for name in ("dataType", "mapping", "encoding")):
        return
    check_value(value_node(spec), parse_default(spec.data_type, spec.default_value), "", wrong)
    if wrong:
        faults.add(f"{path}.defaultValue", wrong[0].reason)


def parse_default(kind: str, text: str | None) -> object:
    """Return the value of a `defaultValue`, which is always text on the wire."""
    if text is None or kind in {"STRING", "ENUM"}:
        return text
    if kind == "BOOL":
        return _BOOL_BY_TEXT.get(text.lower(), text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def check_members(
    entries: Sequence[PropertyOrParamSpec], path: str, owner: str, faults: Faults
) -> None:
    """Check a flat list of members whose top-level ids are `<owner>.<key>` or `<key>`.

    Completes `parentId` from the id, and `elementDataType` from the `_item`.
    """
    index_by_id: dict[str, int] = {}
    for at, entry in enumerate(entries):
        reason = _id_fault(entry.id, owner)
        if reason:
            faults.add(f"{path}[{at}].id", reason)
        elif index_by_id.setdefault(entry.id, at) != at:
            faults.add(f"{path}[{at}].id", f"repeats {path}[{index_by_id[entry.id]}].id")
    by_id = {key: entries[at] for key, at in index_by_id.items()}
    parents = {key.rpartition(".")[0] for key in by_id}
    for at, entry in enumerate(entries):
        if faults.covers(f"{path}[{at}].id"):
            continue
        _check_parent(entry, by_id, f"{path}[{at}]", owner, faults)
        _check_content(entry, by_id, parents, f"{path}[{at}].dataSpec", faults)


def _id_fault(member_id: str, owner: str) -> str | None:
    if not member_id:
        return "is required"
    keys = member_id.removeprefix(f"{owner}.").split(".") if owner else member_id.split(".")
    if len(keys) > MAX_DEPTH:
        return f"is nested more than {MAX_DEPTH} levels deep"
    return next(filter(None, map(find_key_fault, keys)), None)


def _check_parent(
    entry: PropertyOrParamSpec,
    by_id: dict[str, PropertyOrParamSpec],
    path: str,
    owner: str,
    faults: Faults,
) -> None:
    expected, _, key = entry.id.rpartition(".")
    given_parent = entry.data_spec.parent_id
    place = f"{path}.dataSpec.parentId"
    if given_parent and given_parent != expected:
        return faults.add(
            place, f"must be '{expected}', the prefix of the id. Got '{given_parent}'"
        )
    entry.data_spec.parent_id = expected or None
    parent = by_id.get(expected)
    kind = parent.data_spec.data_type if parent else "STRUCT"
    if expected != owner and parent is None:
        faults.add(place, f"must be the id of a member. Got '{expected}'")
    elif kind not in CONTAINER_TYPES:
        faults.add(place, f"must be a STRUCT or ARRAY. Got {kind or 'a member without a type'}")
    elif (key == ITEM_KEY) != (kind == "ARRAY"):
        faults.add(
            f"{path}.id", f"only an ARRAY has a member '{ITEM_KEY}', and it has no other members"
        )
    return None


def _check_content(
    entry: PropertyOrParamSpec,
    by_id: dict[str, PropertyOrParamSpec],
    parents: set[str],
    path: str,
    faults: Faults,
) -> None:
    """Check that a STRUCT has members and an ARRAY elements, unless `ref` provides them."""
    spec = entry.data_spec
    supplied = bool(getattr(entry, "ref", None))
    if spec.data_type == "STRUCT" and entry.id not in parents and not supplied:
        return faults.add(f"{path}.dataType", "is STRUCT, but there are no members")
    if spec.data_type != "ARRAY":
        return None
    place = f"{path}.elementDataType"
    item = by_id.get(f"{entry.id}.{ITEM_KEY}")
    if item is None:
        if not spec.element_data_type and not supplied:
            faults.add(place, f"is required without a member '{entry.id}.{ITEM_KEY}'")
        elif spec.element_data_type in CONTAINER_TYPES and not supplied:
            faults.add(place, f"requires a member '{entry.id}.{ITEM_KEY}'")
        elif spec.element_data_type == "ENUM" and not spec.mapping and not supplied:
            faults.add(f"{path}.mapping", "is required for elements of an ENUM")
        return None
    kind = item.data_spec.data_type
    if spec.element_data_type and spec.element_data_type != kind:
        return faults.add(place, f"must be {kind}, the type of '{item.id}'")
    spec.element_data_type = kind or None
    return None


def complete_access(entries: Sequence[PropertySpec], path: str, faults: Faults) -> None:
    """Set missing access modes to those of the parents, and check all."""
    settled: dict[str, str] = {}
    order = sorted(range(len(entries)), key=lambda at: entries[at].id.count("."))
    for at in order:
        entry = entries[at]
        above = settled.get(entry.id.rpartition(".")[0], "")
        entry.access_mode = settled[entry.id] = entry.access_mode or above
        place = f"{path}[{at}].accessMode"
        if not entry.access_mode:
            faults.add(place, "is required")
        elif entry.access_mode not in ACCESS_MODES:
            faults.add(place, "must be one of R, W, RW")
        elif above == "R" and entry.access_mode != "R":
            faults.add(place, f"must be R inside a read-only parent. Got {entry.access_mode}")
