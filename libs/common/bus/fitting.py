"""Events that fit: what is too much of one is left out, and named in its `omitted`.

Measured is the encoded size, since JSON writes some characters with six bytes.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from libs.common.errors import TooLarge

LARGEST_EVENT = 512 * 1024
"""Bytes of an event: half of what nats-server takes by default, headers included."""
NAMED = 100
"""Most names in `omitted`; the last entry tells how many more there are."""
LONGEST_NAME = 200
"""Characters of a name there."""
LONGEST_TEXT = 4000
"""Characters that are kept of a text that is cut."""
_NAMES = 128 * 1024
"""Bytes that are left for the names."""
_WHOLE = frozenset(("device", "actor", "object"))
"""Members of events that are never cut: they say what the event is about."""

_Part = tuple[str, str | int | None]
"""A member of an event, and a key or index in it; None for the end of a text."""

_encode = msgspec.json.Encoder().encode


def fitted(event: msgspec.Struct, most: int = LARGEST_EVENT) -> bytes:
    """Encode an event in at most so many bytes.

    The largest parts go first: members of its objects (`properties.log`), items of its lists
    (`subcommand[3]`), the ends of its texts (`error`). Raises `TooLarge` when what cannot be
    cut is too large already.
    """
    raw = _encode(event)
    if len(raw) <= most:
        return raw
    members: dict[str, Any] = msgspec.to_builtins(event)
    excess = len(raw) - most + _NAMES
    gone: list[_Part] = []
    for size, member, part in sorted(_parts(members), key=lambda part: part[0], reverse=True):
        if excess <= 0:
            break
        excess -= size
        gone.append((member, part))
    _leave_out(members, gone)
    members["omitted"] = _names(gone)
    raw = _encode(members)
    if len(raw) > most:
        raise TooLarge(f"an event has {len(raw)} bytes, {most} are allowed")
    return raw


def _parts(members: dict[str, Any]) -> Iterator[tuple[int, str, str | int | None]]:
    """Encoded size of each part that may go, and the part."""
    for name, value in members.items():
        if name in _WHOLE:
            continue
        if isinstance(value, dict):
            for key, part in value.items():
                yield len(_encode(key)) + len(_encode(part)) + 2, name, key
        elif isinstance(value, list):
            for index, part in enumerate(value):
                yield len(_encode(part)) + 1, name, index
        elif isinstance(value, str) and len(value) > LONGEST_TEXT:
            yield len(_encode(value[LONGEST_TEXT:])), name, None


def _leave_out(members: dict[str, Any], gone: list[_Part]) -> None:
    for member in {member for member, _ in gone}:
        parts = {part for owner, part in gone if owner == member}
        value = members[member]
        if isinstance(value, dict):
            members[member] = {key: part for key, part in value.items() if key not in parts}
        elif isinstance(value, list):
            members[member] = [part for at, part in enumerate(value) if at not in parts]
        else:
            members[member] = value[:LONGEST_TEXT]


def _names(gone: list[_Part]) -> list[str]:
    more = [f"and {len(gone) - NAMED} more"] if len(gone) > NAMED else []
    return [_name(*part)[:LONGEST_NAME] for part in gone[:NAMED]] + more


def _name(member: str, part: str | int | None) -> str:
    if part is None:
        return member
    return f"{member}[{part}]" if isinstance(part, int) else f"{member}.{part}"
