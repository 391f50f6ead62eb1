"""What msgspec finds wrong is said in words, with its place once."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from libs.common.decoding import parse_validation_error


class Inner(msgspec.Struct):
    """Something inside."""

    q: int


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """One field of each sort."""

    a: Annotated[int, msgspec.Meta(ge=1)] = 1
    f: Annotated[float, msgspec.Meta(lt=3)] | None = None
    p: Annotated[str, msgspec.Meta(pattern=r"^[A-Z\-/\[\]]+$")] = "A"
    c: Literal["X", "Y"] = "X"
    n: Annotated[list[Annotated[str, msgspec.Meta(min_length=1)]], msgspec.Meta(max_length=2)] = []
    d: dict[str, Annotated[str, msgspec.Meta(max_length=3)]] = {}
    e: int | str | None = None
    s: list[Inner] = []
    b: bool = False


@pytest.mark.parametrize(
    ("given", "place", "reason"),
    [
        ({"a": "x"}, "a", "must be a whole number, not a text"),
        ({"a": None}, "a", "must be a whole number, not null"),
        ({"a": 0}, "a", "must be at least 1"),
        ({"f": []}, "f", "must be a number, not an array"),
        ({"f": 3}, "f", "must be less than 3"),
        ({"p": "x-"}, "p", r"must match ^[A-Z\-/\[\]]+$"),
        ({"c": "Z"}, "c", "cannot be 'Z'"),
        ({"n": ["a", "b", "c"]}, "n", "must have at most 2 entries"),
        ({"n": [""]}, "n[0]", "must not be empty"),
        ({"d": {"k": "long"}}, "d[...]", "must have at most 3 characters"),
        ({"e": {}}, "e", "must be a whole number or a text, not an object"),
        ({"b": 1}, "b", "must be true or false, not a whole number"),
        ({"s": [{"q": 1}, {}]}, "s[1].q", "is required"),
        ({"z": 1}, "z", "is unknown"),
        ([], "", "must be an object, not an array"),
    ],
)
def test_a_message_of_the_decoder_is_translated(given: Any, place: str, reason: str):
    """The place as a path without a root, the reason as what must be."""
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.json.decode(msgspec.json.encode(given), type=Body)
    found = parse_validation_error(str(error.value))
    assert (found.place, found.reason) == (place, reason)
    assert found.missing == (reason == "is required")
    below = parse_validation_error(str(error.value), "data")
    assert below.place == (f"data.{place}" if place else "data")


def test_an_unknown_message_is_kept():
    """It becomes a sentence that follows a path."""
    assert parse_validation_error("Number out of range - at `$.x`").text == "x: number out of range"
    assert parse_validation_error("There is `this`").text == "there is 'this'"
