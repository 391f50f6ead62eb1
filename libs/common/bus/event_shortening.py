"""Shortening of events: the largest parts are omitted, and named in `omitted`.

The encoded size counts, because JSON escapes some characters with six bytes.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from libs.common.errors import TooLarge

MAX_EVENT_BYTES = 512 * 1024
"""Maximum bytes of an event: half of nats-server's default maximum, which leaves room for
headers."""
MAX_OMITTED_NAMES = 100
"""Maximum number of names in `omitted`; the last entry gives the number of the others."""
MAX_OMITTED_NAME_LENGTH = 200
"""Maximum characters of a name in `omitted`."""
MAX_SHORTENED_TEXT_LENGTH = 4000
"""Maximum characters that are kept of a shortened text."""
_OMITTED_NAMES_BYTES = 128 * 1024
"""Bytes reserved for the names."""
_UNDIVIDED_FIELDS = frozenset(("device", "actor", "object"))
"""Members of events that are never omitted, because they identify the event."""

_OmittedPart = tuple[str, str | int | None]
"""A member of an event, and a key or index in it; None for the end of a text."""

_encode_json = msgspec.json.Encoder().encode


def encode_shortened_event(event: msgspec.Struct) -> bytes:
    """Encode an event in at most `MAX_EVENT_BYTES` bytes.

    The largest parts are omitted first: members of its objects (`properties.log`), items of its
    lists (`subcommand[3]`), the ends of its texts (`error`). Raises `TooLarge` when the rest is
    still too large.
    """
    raw = _encode_json(event)
    if len(raw) <= MAX_EVENT_BYTES:
        return raw
    members: dict[str, Any] = msgspec.to_builtins(event)
    excess = len(raw) - MAX_EVENT_BYTES + _OMITTED_NAMES_BYTES
    omitted: list[_OmittedPart] = []
    for size, member, part in sorted(
        _omittable_parts(members), key=lambda part: part[0], reverse=True
    ):
        if excess <= 0:
            break
        excess -= size
        omitted.append((member, part))
    _omit(members, omitted)
    members["omitted"] = _omitted_names(omitted)
    raw = _encode_json(members)
    if len(raw) > MAX_EVENT_BYTES:
        raise TooLarge(f"an event has {len(raw)} bytes, {MAX_EVENT_BYTES} are allowed")
    return raw


def _omittable_parts(members: dict[str, Any]) -> Iterator[tuple[int, str, str | int | None]]:
    """Yield each part that may be omitted, with its encoded size."""
    for name, value in members.items():
        if name in _UNDIVIDED_FIELDS:
            continue
        if isinstance(value, dict):
            for key, part in value.items():
                yield len(_encode_json(key)) + len(_encode_json(part)) + 2, name, key
        elif isinstance(value, list):
            for index, part in enumerate(value):
                yield len(_encode_json(part)) + 1, name, index
        elif isinstance(value, str) and len(value) > MAX_SHORTENED_TEXT_LENGTH:
            yield len(_encode_json(value[MAX_SHORTENED_TEXT_LENGTH:])), name, None


def _omit(members: dict[str, Any], omitted: list[_OmittedPart]) -> None:
    for member in {member for member, _ in omitted}:
        parts = {part for owner, part in omitted if owner == member}
        value = members[member]
        if isinstance(value, dict):
            members[member] = {key: part for key, part in value.items() if key not in parts}
        elif isinstance(value, list):
            members[member] = [part for at, part in enumerate(value) if at not in parts]
        else:
            members[member] = value[:MAX_SHORTENED_TEXT_LENGTH]


def _omitted_names(omitted: list[_OmittedPart]) -> list[str]:
    more = (
        [f"and {len(omitted) - MAX_OMITTED_NAMES} more"] if len(omitted) > MAX_OMITTED_NAMES else []
    )
    return [
        _omitted_name(*part)[:MAX_OMITTED_NAME_LENGTH] for part in omitted[:MAX_OMITTED_NAMES]
    ] + more


def _omitted_name(member: str, part: str | int | None) -> str:
    if part is None:
        return member
    return f"{member}[{part}]" if isinstance(part, int) else f"{member}.{part}"
