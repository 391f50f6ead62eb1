"""Checks of decoded frames against the TSL."""

from libs.common.tsl import compile_tsl, parse_document
from services.device.lorawan.codec_calls import CallOutcome
from services.device.lorawan.codec_scripts import check_decoded_frame
from services.device.things.codec_model import Codec, CodecArgument, CodecStep

CODEC = Codec(
    scripts={"a.js": "function Decode() {}"},
    decoder=[CodecStep("a.js", "Decode", [CodecArgument("bytes", payload=True)])],
)
FLOAT = {"accessMode": "R", "dataSpec": {"dataType": "FLOAT"}}
TSL = compile_tsl(
    parse_document({"version": "v1", "properties": [{"id": "t"} | FLOAT, {"id": "pm"} | FLOAT]})
)


def test_an_invalid_value_rejects_no_other() -> None:
    """An invalid value is a fault, and the other values are stored."""
    result = check_decoded_frame(
        CODEC, CallOutcome({"t": "21.5", "pm.2.5": 3, "pm": 1, "x": None}), TSL, 0, 1
    )
    assert (result.properties, result.reason) == ({"t": 21.5, "pm": 1.0}, "")
    assert [fault.path for fault in result.faults] == ["properties.pm.2.5", "properties.x"]


def test_a_frame_without_a_valid_value_is_rejected() -> None:
    """A frame without a valid value is rejected with every fault."""
    result = check_decoded_frame(CODEC, CallOutcome({"pm": None, "pm.2": 1}), TSL, 0, 1)
    assert result.properties == {}
    assert "properties.pm.2: is ignored" in result.reason
    assert "properties.pm: must not be null" in result.reason
