"""Values that people send, read as what their entity is, and checked by the TSL of its thing."""

from typing import Any

import msgspec
import pytest

from libs.common.contracts.integrations import MISSING_SETTING_CODE
from libs.common.errors import InvalidInput
from libs.common.tsl import Fault, compile_tsl, generic_tsl
from services.device.entities.custom_model import build_tsl
from services.device.members.members import Member, MemberSet
from services.device.members.values import (
    ValueFault,
    convert_faults,
    convert_value,
    integration_fault,
    integration_rejection,
)
from tests.placeholders import missing_arguments

KEY = "direct.device.x.m"


def member(value_type: Any, **attribute: Any) -> Member:
    """A property."""
    return Member(
        number=1,
        path="m",
        type="PROPERTY",
        name="M",
        value_type=value_type,
        access_mod="RW",
        attribute=attribute,
    )


def check_value(key: str, member: Member, given: Any) -> tuple[Any, ValueFault | None]:
    """The value as a thing with such a property takes it, or what is said of it."""
    root = msgspec.structs.replace(member, path="")
    known = member.value_type != "OBJECT"
    tsl = compile_tsl(build_tsl("m", [root])) if known else generic_tsl()
    values, faults = tsl.check_report({"m": convert_value(member.value_type, given)})
    told = convert_faults(key.removesuffix(".m"), MemberSet([member]), "", faults)
    for fault in told:
        assert missing_arguments(fault.error_code, fault.args) == []
    return values.get("m"), told[0] if told else None


@pytest.mark.parametrize(
    ("value_type", "given", "expected"),
    [
        ("LONG", 5, 5),
        ("LONG", "5", 5),
        ("LONG", " -5 ", -5),
        ("LONG", "+5", 5),
        ("LONG", 5.0, 5),
        ("LONG", "5.0", 5),
        ("LONG", "5e2", 500),
        ("LONG", "9223372036854775807", 2**63 - 1),
        ("DOUBLE", 1, 1.0),
        ("DOUBLE", "1.5", 1.5),
        ("DOUBLE", ".5", 0.5),
        ("DOUBLE", "1e-3", 0.001),
        ("BOOLEAN", True, True),
        ("BOOLEAN", "TRUE", True),
        ("BOOLEAN", "false", False),
        ("BOOLEAN", 1, True),
        ("BOOLEAN", "0", False),
        ("STRING", "", ""),
        ("STRING", 5, "5"),
        ("STRING", 1.5, "1.5"),
        ("STRING", True, "true"),
        ("BINARY", "AAEC", "AAEC"),
        ("BINARY", "", ""),
        ("OBJECT", [1], [1]),
        ("OBJECT", {"a": 1}, {"a": 1}),
    ],
)
def test_values_are_read(value_type, given, expected):
    """Numbers and booleans may come as text."""
    value, fault = check_value(KEY, member(value_type), given)
    assert fault is None
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("value_type", "given"),
    [
        *(("LONG", one) for one in ("", "x", "5.5", 5.5, True, "0x5", "5 5", 2**63, "1e999", [])),
        *(("LONG", one) for one in (float("inf"), float("nan"), "\u0665", {})),
        *(("DOUBLE", one) for one in ("", "x", "nan", "inf", "1e999", True, [], 10**400)),
        *(("BOOLEAN", one) for one in ("", "yes", 2, 1.0, "2", [True])),
        *(("STRING", one) for one in ([], {}, [1])),
        *(("BINARY", one) for one in (5, "A", "A===", "ä", "A A=", [])),
        *(("OBJECT", one) for one in ("{}", 5, True)),
    ],
)
def test_an_unreadable_value_has_a_code(value_type, given):
    """The fault names the type and never repeats more than 200 characters."""
    value, fault = check_value(KEY, member(value_type), given)
    assert value is None
    assert fault is not None
    assert fault.error_code == "entity_value_not_match_type"
    assert fault.args["type"] == value_type


@pytest.mark.parametrize(
    ("value_type", "attribute", "given", "code"),
    [
        ("LONG", {"min": 1}, 0, "less_than_min"),
        ("LONG", {"max": 1}, 2, "greater_than_max"),
        ("DOUBLE", {"min": 0, "max": 1}, "1.01", "out_of_range"),
        ("STRING", {"min_length": 2}, "a", "length_shorter_than_min_length"),
        ("STRING", {"max_length": 2}, "abc", "length_longer_than_max_length"),
        ("STRING", {"min_length": 2, "max_length": 2}, "abc", "length_out_of_range"),
        ("STRING", {"format": "HEX"}, "0g", "not_match_format"),
        ("STRING", {"format": "HEX"}, "0", "not_match_format"),
        ("STRING", {"enum": {"a": "A"}}, "b", "invalid_enum"),
        ("LONG", {"enum": {"1": "A"}}, "2", "invalid_enum"),
    ],
)
def test_bounds_hold(value_type, attribute, given, code):
    """Each has its code."""
    _, fault = check_value(KEY, member(value_type, **attribute), given)
    assert fault is not None
    assert fault.error_code == f"entity_value_{code}"
    assert fault.args["entity_key"] == KEY
    assert fault.args["entity_name"] == "M"


@pytest.mark.parametrize(
    ("value_type", "attribute", "given"),
    [
        ("LONG", {"min": 1, "max": 1}, "1"),
        ("STRING", {"min_length": 0, "max_length": 2}, "ab"),
        ("STRING", {"format": "HEX"}, "0a0B"),
        ("LONG", {"enum": {"1": "A"}, "min": 5}, "1"),
    ],
)
def test_bounds_are_inclusive(value_type, attribute, given):
    """Values at the bounds are valid. An enumeration has no other bounds."""
    assert check_value(KEY, member(value_type, **attribute), given)[1] is None


@pytest.mark.parametrize("path", ["properties", "properties.other", "properties.m.inner"])
def test_a_fault_of_no_whole_entity_fills_the_text_of_its_code(path):
    """Consoles put its name and its type into their words."""
    (fault,) = convert_faults(KEY, MemberSet([member("OBJECT")]), "", [Fault(path, "is wrong")])
    assert fault.error_code == "entity_value_not_match_type"
    assert missing_arguments(fault.error_code, fault.args) == []


@pytest.mark.parametrize(
    ("code", "text", "expected", "args"),
    [
        (MISSING_SETTING_CODE, "m: is not set", "entity_value_null", {}),
        (
            "parameter_validation_failed",
            "m: 10.0.0.1 is not a public address",
            "entity_value_not_match_format",
            {"format": "10.0.0.1 is not a public address"},
        ),
    ],
)
def test_rejections_of_integrations_have_known_codes(code, text, expected, args):
    """Its reason is shown as the format that the value lacks."""
    fault = integration_fault(KEY, member("STRING"), code, text)
    assert (fault.error_code, fault.error_message) == (expected, text)
    assert fault.args == {"entity_key": KEY, "entity_name": "M", **args}
    assert missing_arguments(fault.error_code, fault.args) == []


def test_rejections_without_an_input_are_shown_unchanged():
    """A gateway's error keeps its text and its code."""
    refused = integration_rejection("exchange", InvalidInput("the lamp has no such scene"))
    assert (refused.code, refused.detail) == (
        "gateway_respond_error",
        {"error": "the lamp has no such scene"},
    )
    kept = integration_rejection("exchange", InvalidInput("not here", code="method_not_allowed"))
    assert kept.code == "method_not_allowed"


def test_null_is_a_fault_of_its_own():
    """With a code of its own."""
    _, fault = check_value(KEY, member("LONG"), None)
    assert fault is not None
    assert fault.error_code == "entity_value_null"


def test_a_long_value_is_not_repeated_whole():
    """An answer stays small, whatever was sent."""
    _, fault = check_value(KEY, member("LONG"), "x" * 1000)
    assert fault is not None
    assert len(fault.args["value"]) == 200
