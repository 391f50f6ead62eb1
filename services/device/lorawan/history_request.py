"""Check whether a codec's encoder can request past readings of a device.

Templates of manufacturers have a service with `start_time` and `end_time` in seconds. Many encoders
omit `end_time`, so the device would answer with another range. The check encodes requests for many
ranges, whose bytes must differ. No I/O.
"""

from collections.abc import Sequence

from libs.common.tsl import TslDocument, ids_from_keys
from services.device.lorawan.codec_calls import CallOutcome, CodecCall
from services.device.lorawan.codec_scripts import parse_encoder_result
from services.device.things.codec_model import Codec, CodecFailed
from services.device.things.product_model import HistoryRequest

MAX_CHECKED_SERVICES = 4
"""Maximum number of services that are checked."""
MAX_CHECK_SECONDS = 1.0
"""Maximum processor time of all checks of a codec, in seconds."""

_TEST_PORT = 85
_RANGE_INPUTS = {"start_time", "end_time"}
_HOUR_SECONDS, _BASE_SECONDS = 3600, 1_700_000_000
TEST_RANGES = [
    *(
        (_BASE_SECONDS, _BASE_SECONDS + seconds)
        for seconds in (1, 59, 255, 256, _HOUR_SECONDS, 65_536, 86_400)
    ),
    *(
        (_BASE_SECONDS + seconds, _BASE_SECONDS + 86_400)
        for seconds in (1, 60, 256, _HOUR_SECONDS, 65_536)
    ),
    (0x65000000, 0x66000000),
    (0x7FFFFF80, 0x7FFFFFFF),
]
"""Starts and ends until 2038 in seconds, with some special byte patterns."""


def find_range_services(document: TslDocument) -> list[str]:
    """Return up to `MAX_CHECKED_SERVICES` services whose inputs are `start_time` and `end_time`."""
    inputs = {
        service.id: {each.id.rpartition(".")[2] for each in service.inputs}
        for service in ids_from_keys(document).services
    }
    return [service for service, names in inputs.items() if names == _RANGE_INPUTS][
        :MAX_CHECKED_SERVICES
    ]


def build_test_calls(services: Sequence[str]) -> list[CodecCall]:
    """Return the calls that encode each service with each of `TEST_RANGES`."""
    return [
        CodecCall("encode", {service: {"start_time": start, "end_time": end}}, _TEST_PORT, 0)
        for service in services
        for start, end in TEST_RANGES
    ]


def choose_history_request(
    codec: Codec, services: Sequence[str], outcomes: Sequence[CallOutcome]
) -> HistoryRequest | None:
    """Return the first service without a fault; if all have faults, the first with its fault.

    Returns None without outcomes.
    """
    requests = [
        HistoryRequest(
            service=service, fault=_find_fault(codec, outcomes[at : at + len(TEST_RANGES)])
        )
        for at, service in zip(range(0, len(outcomes), len(TEST_RANGES)), services, strict=True)
    ]
    return next(
        (entry for entry in requests if entry.fault is None), requests[0] if requests else None
    )


def _find_fault(codec: Codec, outcomes: Sequence[CallOutcome]) -> str | None:
    ranges_by_bytes: dict[bytes, tuple[int, int]] = {}
    for bounds, outcome in zip(TEST_RANGES, outcomes, strict=True):
        try:
            answer = parse_encoder_result(codec.encoder, outcome.result(), _TEST_PORT).content
        except CodecFailed as error:
            return f"{_render_range(bounds)}: the codec {error}"[:500]
        if not answer:
            return f"{_render_range(bounds)}: the codec returns no bytes"
        other = ranges_by_bytes.setdefault(answer, bounds)
        if other != bounds:
            which = "end_time" if other[0] == bounds[0] else "start_time"
            ranges = f"{_render_range(other)} and {_render_range(bounds)}"
            return f"leaves out {which}: {ranges} give the same bytes"
    return None


def _render_range(bounds: tuple[int, int]) -> str:
    return f"{bounds[0]} to {bounds[1]}"
