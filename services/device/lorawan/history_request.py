"""Whether a codec's encoder can ask a device for what it remembers, and whether it does it right.

Makers' templates have a service for it, with `start_time` and `end_time` (s). Many of their
encoders leave `end_time` out where it is given: a device asked so would answer with something else.
That is found by encoding requests for many ranges, which have to differ wherever the ranges do. No
I/O.
"""

from collections.abc import Sequence

from libs.common.tsl import TslDocument, by_keys
from services.device.lorawan.codec_scripts import encoded
from services.device.lorawan.codec_worker import Call, Outcome
from services.device.things.codec_model import Codec, CodecFailed
from services.device.things.product_model import HistoryRequest

MOST = 4
"""Services that are looked at."""
SECONDS = 1.0
"""Of the processor that the looks at a codec may take together."""

_PORT = 85
_INPUTS = {"start_time", "end_time"}
_HOUR, _BASE = 3600, 1_700_000_000
RANGES = [
    *((_BASE, _BASE + one) for one in (1, 59, 255, 256, _HOUR, 65_536, 86_400)),
    *((_BASE + one, _BASE + 86_400) for one in (1, 60, 256, _HOUR, 65_536)),
    (0x65000000, 0x66000000),
    (0x7FFFFF80, 0x7FFFFFFF),
]
"""Starts and ends (s) until 2038, also some whose bytes are special."""


def candidates(document: TslDocument) -> list[str]:
    """Services that take a range, the first ones."""
    inputs = {
        one.id: {each.id.rpartition(".")[2] for each in one.inputs}
        for one in by_keys(document).services
    }
    return [service for service, names in inputs.items() if names == _INPUTS][:MOST]


def calls_of(services: Sequence[str]) -> list[Call]:
    """What is encoded to judge services."""
    return [
        Call("encode", {service: {"start_time": start, "end_time": end}}, _PORT, 0)
        for service in services
        for start, end in RANGES
    ]


def judged(
    codec: Codec, services: Sequence[str], outcomes: Sequence[Outcome]
) -> HistoryRequest | None:
    """What the outcomes of `calls_of` show: the first service that is right, or the first at all.

    None when there are no services.
    """
    found = [
        HistoryRequest(service=service, fault=_fault(codec, outcomes[at : at + len(RANGES)]))
        for at, service in zip(range(0, len(outcomes), len(RANGES)), services, strict=True)
    ]
    return next((one for one in found if one.fault is None), found[0] if found else None)


def _fault(codec: Codec, outcomes: Sequence[Outcome]) -> str | None:
    known: dict[bytes, tuple[int, int]] = {}
    for asked, outcome in zip(RANGES, outcomes, strict=True):
        try:
            answer = encoded(codec.encoder, outcome.given(), _PORT).content
        except CodecFailed as error:
            return f"{_range(asked)}: the codec {error}"[:500]
        if not answer:
            return f"{_range(asked)}: the codec gives no bytes"
        other = known.setdefault(answer, asked)
        if other != asked:
            which = "end_time" if other[0] == asked[0] else "start_time"
            return f"leaves out {which}: {_range(other)} and {_range(asked)} give the same bytes"
    return None


def _range(asked: tuple[int, int]) -> str:
    return f"{asked[0]} to {asked[1]}"
