"""Checks of encoders for requests of past readings."""

import pytest

from libs.common.tsl import TslDocument, parse_document
from services.device.lorawan.codec_worker import ReloadableCodec
from services.device.lorawan.history_request import (
    MAX_CHECK_SECONDS,
    MAX_CHECKED_SERVICES,
    build_test_calls,
    choose_history_request,
    find_range_services,
)
from services.device.things.codec_model import Codec, CodecArgument, CodecStep
from services.device.things.product_model import HistoryRequest
from tests.templates import names, template

NUMBERS = "const u32 = (n) => [n >>> 24, n >>> 16 & 255, n >>> 8 & 255, n & 255];"
RIGHT = "...u32(fetch_history.start_time), ...u32(fetch_history.end_time)"


def document(*services: str, inputs: tuple[str, ...] = ("start_time", "end_time")) -> TslDocument:
    return parse_document(
        {
            "version": "v1.0",
            "services": [
                {
                    "id": service,
                    "name": service,
                    "inputs": [
                        {
                            "id": f"{service}.{one}",
                            "name": one,
                            "dataSpec": {"dataType": "LONG"},
                        }
                        for one in inputs
                    ],
                }
                for service in services
            ],
        }
    )


def check_codec(bytes_: str, *services: str) -> HistoryRequest | None:
    """Return the request of an encoder that returns these bytes."""
    script = f"{NUMBERS} function Encode(port, {{fetch_history}}) {{ return [{bytes_}] }}"
    step = CodecStep("a.js", "Encode", [CodecArgument("fPort"), CodecArgument("obj", payload=True)])
    codec = Codec(scripts={"a.js": script}, decoder=[step], encoder=[step])
    outcomes = ReloadableCodec(codec).run_calls(build_test_calls(services), MAX_CHECK_SECONDS)
    return choose_history_request(codec, services, outcomes)


def test_a_service_with_a_time_range_is_a_candidate() -> None:
    """A service with a time range is a candidate, whatever its name."""
    many = [f"fetch{at}" for at in range(MAX_CHECKED_SERVICES + 1)]
    assert find_range_services(document(*many)) == many[:MAX_CHECKED_SERVICES]
    assert find_range_services(document("fetch", inputs=("start_time",))) == []
    assert find_range_services(document("fetch", inputs=("start_time", "end_time", "rate"))) == []


def test_an_encoder_with_different_bytes_for_all_ranges_is_valid() -> None:
    """Different bytes for all ranges have no fault."""
    assert check_codec(RIGHT, "fetch_history") == HistoryRequest(service="fetch_history")
    assert check_codec(RIGHT, "other", "fetch_history") == HistoryRequest(service="fetch_history")
    assert check_codec(RIGHT) is None


@pytest.mark.parametrize(
    ("bytes_", "fault"),
    [
        ("...u32(fetch_history.start_time)", "leaves out end_time: 1700000000 to 1700000001 and"),
        ("...u32(fetch_history.end_time)", "leaves out start_time: "),
        (RIGHT.replace("...u32(fetch_history.end_time)", "fetch_history.end_time & 255"), "leaves"),
        ("", "the codec returns no bytes"),
        ("300", "the codec returns 300 as byte 0"),
        ("fetch_history.none.none", "the codec TypeError"),
        ("(() => { for (;;); })()", "the codec takes too long"),
    ],
)
def test_the_fault_says_which_time_is_omitted(bytes_: str, fault: str) -> None:
    """The fault names the omitted time and two ranges with the same bytes."""
    found = check_codec(bytes_, "fetch_history")
    assert found is not None
    assert fault in (found.fault or "")
    assert found.fault


LEFT_OUT = {"am102", "am308", "am319_o3", "em300_mcs", "em300_zld", "em500_pt100"}
RIGHT_ONES = {"am104", "em410_rdl", "ts201_v2", "ts302_v2", "wt102"}


@pytest.mark.parametrize(
    "name",
    ["am308", "ts302_v2", "wt102", "ws303"]
    + [pytest.param(one, marks=pytest.mark.slow) for one in names()],
)
def test_encoders_of_public_templates_are_checked(name: str) -> None:
    """Public templates have valid encoders, some without `end_time`, and some without a request."""
    found = template(name)
    services = find_range_services(found.document)
    outcomes = ReloadableCodec(found.codec).run_calls(build_test_calls(services), MAX_CHECK_SECONDS)
    request = choose_history_request(found.codec, services, outcomes)
    assert (request is not None) == (name in LEFT_OUT | RIGHT_ONES)
    if request is not None:
        assert (request.fault is None) == (name in RIGHT_ONES)
        assert "leaves out end_time" in (request.fault or "leaves out end_time")
