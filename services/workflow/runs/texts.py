"""Values as the log shows them: JSON text, secrets masked, cut where it is too long. No I/O."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

LONGEST_TEXT = 16 * 1024
"""Characters of one input or output in a trace; of a longer one the beginning is kept."""
LONGEST_TRACE = 1024 * 1024
"""Characters of all inputs and outputs of one run; what comes later is left out."""
MASK = "******"

_SECRET = re.compile(
    r"pass(word|wd|phrase)|secret|token|authorization|cookie|api[_-]?key|private_?key|credential",
    re.IGNORECASE,
)
_SECRET_KEY = re.compile(
    rb'"[^"]*(pass(word|wd|phrase)|secret|token|authorization|cookie|api[_-]?key|private_?key'
    rb"|credential)"
    rb'[^"]*"\s*:',
    re.IGNORECASE,
)


def shown_text(value: Any) -> str | None:
    """`value` as JSON text; None for nothing.

    What is too long becomes `{"truncated": its beginning, "characters": how many it has}`, so
    that the text is JSON in any case.
    """
    if value is None:
        return None
    encoded = msgspec.json.encode(value, enc_hook=str)
    if _SECRET_KEY.search(encoded):
        encoded = msgspec.json.encode(masked(msgspec.json.decode(encoded)))
    text = encoded.decode()
    if len(text) <= LONGEST_TEXT:
        return text
    short = {"truncated": text[:LONGEST_TEXT], "characters": len(text)}
    return msgspec.json.encode(short).decode()


def masked(value: Any) -> Any:
    """`value` without what stands under the name of a secret."""
    if isinstance(value, Mapping):
        return {
            key: MASK if _SECRET.search(str(key)) and _hides(one) else masked(one)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [masked(one) for one in value]
    return value


def _hides(value: Any) -> bool:
    return value not in (None, "")
