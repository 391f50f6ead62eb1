"""Check the `dataSpec` of one property or parameter for itself.

Rules that mean nothing for a type (a `minSize` on an INT) are kept and ignored, as
decoders of vendors do; only what contradicts itself is a fault.
"""

import json

from libs.common.tsl._check import check_value
from libs.common.tsl._node import bounds, value_node
from libs.common.tsl._reading import Faults
from libs.common.tsl.document import (
    CONTAINERS,
    DATA_TYPES,
    ENCODINGS,
    NUMBERS,
    DataSpec,
    Validator,
)
from libs.common.tsl.faults import Fault
from libs.common.tsl.limits import MAX_SIZE, MAX_TEXT

_MAX_DIGITS = 15
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}
_UNITS = {"HEX": 2, "BASE64": 4}


def check_spec(spec: DataSpec, path: str, faults: Faults) -> None:
    """Check one `dataSpec`, whose spellings are normalised."""
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
    if spec.default_value is not None and spec.data_type in DATA_TYPES - CONTAINERS:
        _check_default(spec, path, faults)


def scalar_kind(spec: DataSpec) -> str:
    """Give the type whose rules `spec` states: that of the elements, for an ARRAY."""
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
    truths = [_TRUTHS.get(key.lower()) for key in keys]
    if None in truths:
        faults.add(f"{path}.mapping", "of a BOOL has the keys true and false, or 1 and 0")
    elif len(set(truths)) < len(truths):
        faults.add(f"{path}.mapping", "names the same value twice")


def _check_range(spec: DataSpec, rules: Validator, path: str, faults: Faults) -> None:
    if rules.min is not None and rules.max is not None and rules.min > rules.max:
        faults.add(f"{path}.min", "exceeds max")
    elif scalar_kind(spec) in NUMBERS:
        low, high = bounds(scalar_kind(spec), rules)
        if low is not None and high is not None and low > high:
            place = f"{path}.min" if rules.max is None else f"{path}.max"
            faults.add(place, f"leaves no {scalar_kind(spec)} to choose")


def _check_sizes(spec: DataSpec, rules: Validator, path: str, faults: Faults) -> None:
    low, high = rules.min_size, rules.max_size
    for name, size, most in (("minSize", low, MAX_TEXT), ("maxSize", high, MAX_SIZE)):
        if size is not None and not 0 <= size <= most:
            faults.add(f"{path}.{name}", f"must be from 0 to {most}")
    if low is not None and high is not None and low > high:
        faults.add(f"{path}.minSize", "exceeds maxSize")
    elif spec.data_type == "STRING" and high is not None:
        unit = _UNITS.get(spec.encoding or "", 1)
        if high // unit * unit < (low or 0):
            faults.add(f"{path}.maxSize", f"fits no {spec.encoding} text")


def _check_default(spec: DataSpec, path: str, faults: Faults) -> None:
    wrong: list[Fault] = []
    if any(faults.covers(f"{path}.{name}") for name in ("dataType", "mapping", "encoding")):
        return
    check_value(value_node(spec), default_of(spec.data_type, spec.default_value), "", wrong)
    if wrong:
        faults.add(f"{path}.defaultValue", wrong[0].reason)


def default_of(kind: str, text: str | None) -> object:
    """Give the value that a `defaultValue`, always text on the wire, stands for."""
    if text is None or kind in {"STRING", "ENUM"}:
        return text
    if kind == "BOOL":
        return _TRUTHS.get(text.lower(), text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
