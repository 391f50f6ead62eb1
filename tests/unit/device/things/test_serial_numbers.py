"""What an SN looks like."""

import pytest

from libs.common.errors import InvalidInput
from services.device.things.serial_numbers import check_serial, parse_dev_eui


@pytest.mark.parametrize("text", ["A", "6785C38073640023", "a_b-C", "x" * 64])
def test_an_sn_is_a_token_of_a_subject(text: str) -> None:
    """Letters, digits, '_' and '-', at most 64."""
    assert check_serial(text, "sn") == text


@pytest.mark.parametrize(
    "text", ["", "a.b", "a b", "*", ">", "a/b", "+", "#", "é", "a\n", "x" * 65]
)
def test_characters_with_a_meaning_in_subjects_are_rejected(text: str) -> None:
    """They have a meaning in NATS subjects or MQTT topics."""
    with pytest.raises(InvalidInput) as refusal:
        check_serial(text, "snDevEUI")
    assert refusal.value.field == "snDevEUI"


@pytest.mark.parametrize(
    ("serial", "expected"),
    [
        ("24e124136b502217", "24E124136B502217"),
        ("24e124136b50221", None),
        ("24e124136b502217a", None),
        ("24e124136b50221g", None),
    ],
)
def test_sixteen_hexadecimal_digits_are_a_dev_eui(serial: str, expected: str | None) -> None:
    """In upper case."""
    assert parse_dev_eui(serial) == expected
