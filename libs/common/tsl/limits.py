"""Limits of every TSL, and the rule for keys."""

import math
import re
from typing import Final

MAX_DEPTH: Final = 16
"""Maximum levels of nesting, including the top-level property."""

MAX_MEMBERS: Final = 2000
"""Maximum properties, members and parameters of a document, or values of a report of an open
product."""

MAX_KEY_LENGTH: Final = 128
"""Maximum characters of a key."""

MAX_DECLARED_SIZE: Final = 2**31 - 1
"""Greatest `maxSize` in characters or elements."""

MAX_TEXT_LENGTH: Final = 65_536
"""Characters of a text in an open report, and the greatest `minSize`."""

MAX_TIME_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, the maximum of a date."""

MAX_DATE_SECONDS: Final = MAX_TIME_MS // 1000
"""The last second of the year 9999; a DATE in milliseconds exceeds it and is rejected."""

INT_RANGE: Final = (-(2**31), 2**31 - 1)
LONG_RANGE: Final = (-(2**63), 2**63 - 1)

_OPEN_FORBIDDEN = re.compile("[.\x00\ud800-\udfff]")
_SPECIAL_CHARACTER = re.compile("[:*,{}]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_FORBIDDEN = re.compile(r'[.\s\x00-\x1f\x7f"\\\ud800-\udfff]')


def find_key_fault(key: str) -> str | None:
    """Return the fault of `key`, a segment of an id, or None.

    Keys become field names of documents, and parts of entity keys and paths. They must not have a
    dot, white space, control character, quote or backslash, nor begin with `$`, and have at most
    128 characters.
    """
    if not key:
        return "must not be blank"
    if len(key) > MAX_KEY_LENGTH:
        return f"must be at most {MAX_KEY_LENGTH} characters long"
    if key[0] == "$":
        return "must not start with '$'"
    match = _FORBIDDEN.search(key)
    return f"must not contain {match.group()!r}" if match else None


def find_sign_fault(text: str) -> str | None:
    """Return the fault of an id with a special character of entity keys, or None.

    `*` and `,` are special in lists of keys to listen to, braces in references of flows, and a
    colon separates a key from its value.
    """
    match = _SPECIAL_CHARACTER.search(text)
    return f"must not contain {match.group()!r}" if match else None


def find_open_key_fault(key: str) -> str | None:
    """Return why `key` of an open report cannot be a field name in MongoDB, or None."""
    if not key or key.isspace():
        return "must not have a blank key"
    if len(key) > MAX_KEY_LENGTH:
        return f"must have a key of at most {MAX_KEY_LENGTH} characters"
    if key[0] == "$":
        return "must not have a key that starts with '$'"
    match = _OPEN_FORBIDDEN.search(key)
    return f"must not have {match.group()!r} in its key" if match else None


def explain_unstorable(value: object, depth: int = 0) -> str | None:
    """Return why `value` cannot be stored or sent as JSON, or None."""
    if depth > MAX_DEPTH:
        return f"must not be nested more than {MAX_DEPTH} levels deep"
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, list):
        parts = value
    else:
        return explain_unstorable_scalar(value)
    return next(filter(None, (explain_unstorable(part, depth + 1) for part in parts)), None)


def explain_unstorable_scalar(value: object) -> str | None:
    """Return why a scalar cannot be stored or sent as JSON, or None."""
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    if isinstance(value, int) and not LONG_RANGE[0] <= value <= LONG_RANGE[1]:
        return "must fit in 64 bits"
    if isinstance(value, str) and _UNSTORABLE.search(value):
        return "must not contain NUL or half a surrogate pair"
    return None
