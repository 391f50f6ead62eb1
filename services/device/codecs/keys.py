"""Keys of decoded values that name several levels: `plan.days`, `plan.days#sunday`. No I/O."""

import re
from typing import Any

from libs.common.decoding import parse_number
from libs.common.tsl import Fault
from libs.common.tsl.limits import MAX_DEPTH, MAX_KEY

_LEVELS = re.compile("[.#]")


def nest_keys(values: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Return `values` with keys of several levels as objects, and a fault for each lost value.

    A value is lost when another value has its place: a key without levels precedes one with
    levels, whatever their order, and an earlier key a later one. Keys nest at every level.
    """
    faults: list[Fault] = []
    if not _has_levels(values, 0):
        return values, faults
    return _nest(values, "properties", 1, faults), faults


def _has_levels(value: Any, depth: int) -> bool:
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, dict):
        if _LEVELS.search("\n".join(value)):
            return True
        value = value.values()
    elif not isinstance(value, list):
        return False
    return any(_has_levels(item, depth + 1) for item in value if isinstance(item, dict | list))


def _nest(value: Any, path: str, depth: int, faults: list[Fault]) -> Any:
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, list):
        return [_nest(v, f"{path}[{at}]", depth + 1, faults) for at, v in enumerate(value)]
    if not isinstance(value, dict):
        return value
    nested: dict[str, Any] = {}
    for key in sorted(value, key=lambda key: _LEVELS.search(key) is not None):
        place = f"{path}.{key[:MAX_KEY]}"
        levels = _LEVELS.split(key)
        if depth + len(levels) > MAX_DEPTH + 1:
            faults.append(Fault(place, f"has more than {MAX_DEPTH} levels"))
            continue
        _put(nested, levels, _nest(value[key], place, depth + len(levels), faults), place, faults)
    return nested


def _put(
    place: dict[str, Any], levels: list[str], value: Any, path: str, faults: list[Fault]
) -> None:
    *above, key = levels
    for level in above:
        place = place.setdefault(level, {})
        if not isinstance(place, dict):
            faults.append(Fault(path, "is left out: another value is in its place"))
            return
    if key not in place:
        place[key] = value
    elif isinstance(place[key], dict) and isinstance(value, dict):
        for inner, item in value.items():
            _put(place[key], [inner], item, f"{path}.{inner[:MAX_KEY]}", faults)
    elif place[key] != value:
        faults.append(Fault(path, "is left out: another value is in its place"))


def is_expected(given: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Return whether decoded values are those of an example, whose keys may have levels.

    Text that is a number equals the number: a numeric property accepts both.
    """
    return _equals(given, nest_keys(expected)[0], 0)


def _equals(given: Any, expected: Any, depth: int) -> bool:
    if given == expected or depth > MAX_DEPTH:
        return bool(given == expected)
    if isinstance(given, dict) and isinstance(expected, dict):
        return given.keys() == expected.keys() and all(
            _equals(given[key], expected[key], depth + 1) for key in given
        )
    if isinstance(given, list) and isinstance(expected, list):
        return len(given) == len(expected) and all(
            _equals(one, other, depth + 1) for one, other in zip(given, expected, strict=True)
        )
    texts = isinstance(given, str), isinstance(expected, str)
    number = parse_number(given if texts[0] else expected) if texts[0] != texts[1] else None
    return number is not None and number in (given, expected)
