"""Whether a codec's encoder can ask a device for what it remembers, and whether it does so rightly.

Makers' encoders take `fetch_history: {start_time, end_time}` (s). Many of them leave `end_time` out
where it is given: a device asked so would answer with something else. That is found by encoding
requests for many ranges, which have to differ wherever the ranges do. No I/O.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from libs.common.tsl import TslDocument

REQUESTS = ("fetch_history", "retrieve_historical_data_by_time_range")
"""Services of public templates that ask for a range."""
RANGE = {"start_time", "end_time"}

_HOUR, _BASE = 3600, 1_700_000_000
RANGES = [
    *((_BASE, _BASE + one) for one in (1, 59, 255, 256, _HOUR, 65_536, 86_400)),
    *((_BASE + one, _BASE + 86_400) for one in (1, 60, 256, _HOUR, 65_536)),
    (0x65000000, 0x66000000),
    (0x7FFFFF80, 0x7FFFFFFF),
]
"""Starts and ends (s) until 2038, also some whose bytes are special."""


class HistoryRequest(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The service with which the encoder asks a device for what it remembers of a range."""

    service: str
    fault: str | None = None
    """What is wrong with it: then nothing is asked by it."""


def candidates(document: TslDocument | None) -> list[str]:
    """Services that may be such: those of public templates, then declared ones with a range."""
    declared = [
        service.id
        for service in (document.services if document else [])
        if {one.id.rpartition(".")[2] for one in service.inputs} == RANGE
    ]
    return list(dict.fromkeys([*REQUESTS, *declared]))


def asked(service: str, start: int, end: int) -> dict[str, Any]:
    """What is encoded to ask for a range (s)."""
    return {service: {"start_time": start, "end_time": end}}


def judged(service: str, answers: Sequence[bytes | str]) -> HistoryRequest | None:
    """What the `answers` to `RANGES` show, a text being why there is none.

    None when the encoder does not know the service.
    """
    known = [one for one in answers if isinstance(one, bytes) and one]
    if not known:
        return None
    for (start, end), answer in zip(RANGES, answers, strict=True):
        if not answer or isinstance(answer, str):
            reason = answer or "no bytes"
            return HistoryRequest(service=service, fault=f"{_range(start, end)} gives {reason}")
    same: dict[bytes, tuple[int, int]] = {}
    for asked_for, answer in zip(RANGES, known, strict=True):
        other = same.setdefault(answer, asked_for)
        if other != asked_for:
            which = "end_time" if other[0] == asked_for[0] else "start_time"
            both = f"{_range(*other)} and {_range(*asked_for)} give the same bytes"
            return HistoryRequest(service=service, fault=f"leaves out {which}: {both}")
    return HistoryRequest(service=service)


def _range(start: int, end: int) -> str:
    return f"{start} to {end}"
