"""Entry points of scripts by convention, and their results."""

from typing import Any

import pytest

from services.device.lorawan.codec_scripts import (
    DECODER_ARGUMENTS_BY_ENTRY_POINT,
    ENCODER_ARGUMENTS_BY_ENTRY_POINT,
    equals_example,
    find_entry_point,
    parse_decoder_result,
    parse_encoder_result,
)
from services.device.things.codec_model import CodecArgument, CodecFailed, CodecStep


def step(entry: str) -> list[CodecStep]:
    return [CodecStep("a.js", entry, [CodecArgument("input")])]


def test_the_alliances_entry_point_comes_first() -> None:
    """The TS013 entry point precedes older ones."""
    found = {"a.js": ["Decode"], "b.js": ["Decoder", "decodeUplink", "Encoder"]}
    (decoder,) = find_entry_point(found, DECODER_ARGUMENTS_BY_ENTRY_POINT)
    assert (decoder.script, decoder.entry) == ("b.js", "decodeUplink")
    (encoder,) = find_entry_point(found, ENCODER_ARGUMENTS_BY_ENTRY_POINT)
    assert [(argument.id, argument.payload) for argument in encoder.args] == [
        ("obj", True),
        ("port", False),
    ]
    assert find_entry_point({"a.js": []}, DECODER_ARGUMENTS_BY_ENTRY_POINT) == []


def test_the_values_of_a_decoder_are_unwrapped() -> None:
    """The values of TS013 are its `data`; nested keys become objects."""
    data = {"plan.days#sunday": True, "plan.on": 1, "t": 2.5}
    nested = {"plan": {"days": {"sunday": True}, "on": 1}, "t": 2.5}
    assert parse_decoder_result(step("Decode"), data).properties == nested
    given = parse_decoder_result(step("decodeUplink"), {"data": data, "warnings": ["low"]})
    assert given == (nested, ["low"], [])


@pytest.mark.parametrize(
    ("entry", "value", "reason"),
    [
        ("Decode", None, "no object"),
        ("Decode", [1], "no object"),
        ("decodeUplink", {"data": 7}, "no object"),
        ("decodeUplink", {"data": {}, "errors": ["bad", "worse"]}, "bad; worse"),
    ],
)
def test_an_invalid_decoder_result_is_a_fault(entry: str, value: Any, reason: str) -> None:
    """Invalid results and errors of the codec are faults."""
    with pytest.raises(CodecFailed, match=reason):
        parse_decoder_result(step(entry), value)


@pytest.mark.parametrize(
    ("values", "nested", "lost"),
    [
        ({"pm": {"2.5": 3}, "t": 1}, {"pm": {"2": {"5": 3}}, "t": 1}, []),
        ({"a": [{"b.c": 1}, 2]}, {"a": [{"b": {"c": 1}}, 2]}, []),
        ({"a.b": 1, "a": {"c": 2}}, {"a": {"b": 1, "c": 2}}, []),
        ({"a.b": 1, "a": {"b": 1}}, {"a": {"b": 1}}, []),
        ({"pm": 1, "pm.2.5": 3}, {"pm": 1}, ["properties.pm.2.5"]),
        ({"pm.2.5": 3, "pm": 1}, {"pm": 1}, ["properties.pm.2.5"]),
        ({"a.b": 1, "a": {"b": 2}}, {"a": {"b": 2}}, ["properties.a.b"]),
        ({"a.b": {"c": 1, "d": 2}, "a": {"b": {"c": 3}}}, {"a": {"b": {"c": 3, "d": 2}}},
         ["properties.a.b.c"]),
        ({"x": {"a.b": 1, "a": 2}}, {"x": {"a": 2}}, ["properties.x.a.b"]),
        ({".".join("a" * 17): 1, "t": 1}, {"t": 1}, ["properties." + ".".join("a" * 17)]),
    ],
)  # fmt: skip
def test_nested_keys_become_objects_at_every_level(
    values: dict[str, Any], nested: dict[str, Any], lost: list[str]
) -> None:
    """A value whose place is taken is a fault; a plain key precedes a nested one."""
    given = parse_decoder_result(step("Decode"), values)
    assert given.properties == nested
    assert [fault.path for fault in given.faults] == lost


@pytest.mark.parametrize(
    ("given", "expected", "equal"),
    [
        ({"pm2": {"5": 32}}, {"pm2.5": 32}, True),
        ({"pm2": {"5": 32}}, {"pm2": {"5": 32}}, True),
        ({"a": [{"b": {"c": 1}}]}, {"a": [{"b#c": 1}]}, True),
        ({"t": "25.8"}, {"t": 25.8}, True),
        ({"t": "25.8"}, {"t": "25.8"}, True),
        ({"t": "25.8 C"}, {"t": 25.8}, False),
        ({"t": 25.8}, {"t": 25.9}, False),
        ({"t": 1}, {"t": 1, "u": 2}, False),
    ],
)
def test_an_example_may_be_written_flat(
    given: dict[str, Any], expected: dict[str, Any], equal: bool
) -> None:
    """Keys of an example nest like those of the codec."""
    assert equals_example(given, expected) is equal


def test_the_bytes_of_an_encoder_are_unwrapped() -> None:
    """The port is that of the codec, or the requested one."""
    assert parse_encoder_result(step("Encode"), [1, 255], 85) == (b"\x01\xff", 85, [])
    answer = {"bytes": [2], "fPort": 6, "warnings": ["slow"]}
    assert parse_encoder_result(step("encodeDownlink"), answer, 85) == (b"\x02", 6, ["slow"])


def test_the_fraction_of_a_byte_is_cut_off() -> None:
    """Fractions are cut off as network servers do: `[300 / 256, 300 % 256]`."""
    assert parse_encoder_result(step("Encode"), [300 / 256, 44, 255.9], 85).content == bytes(
        [1, 44, 255]
    )


@pytest.mark.parametrize(
    ("entry", "value", "reason"),
    [
        ("Encode", None, "no array"),
        ("Encode", [0] * 256, "255 bytes"),
        ("Encode", [1, 256], "256 as byte 1"),
        ("Encode", [True], "True as byte 0"),
        ("Encode", [-0.5], "-0.5"),
        ("Encode", [None], "None"),
        ("encodeDownlink", {"bytes": [1], "fPort": 224}, "224 as port"),
        ("encodeDownlink", {"bytes": [1], "fPort": "x"}, "as port"),
        ("encodeDownlink", {"errors": "no such"}, "no such"),
    ],
)
def test_an_invalid_encoder_result_is_a_fault(entry: str, value: Any, reason: str) -> None:
    """A fault names the value that cannot be sent."""
    with pytest.raises(CodecFailed, match=reason):
        parse_encoder_result(step(entry), value, 85)
