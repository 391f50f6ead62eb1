"""Reading credentials off a request."""

import base64

import pytest

from libs.common.http.request import basic_login, bearer_token, split_query_token


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (b"Bearer abc", "abc"),
        (b"bEARER  abc ", "abc"),
        (b"Bearer", None),
        (b"Bearer ", None),
        (b"Basic abc", None),
        (b"abc", None),
        (b"", None),
        (None, None),
        (b"Bearer " + b"a" * 5000, None),
    ],
)
def test_bearer_token(header: bytes | None, token: str | None) -> None:
    """The token follows the scheme, in any case; everything else is no token."""
    assert bearer_token(header) == token


@pytest.mark.parametrize(
    ("plain", "login"),
    [
        (b"SN1:key", ("SN1", "key")),
        (b"SN1:a:b", ("SN1", "a:b")),
        ("Gerät:ü".encode(), ("Gerät", "ü")),
        (b":key", None),
        (b"SN1", None),
        (b"\xff:\xff", None),
    ],
)
def test_basic_login(plain: bytes, login: tuple[str, str] | None) -> None:
    """User and password are parted at the first colon, and are UTF-8."""
    assert basic_login(b"Basic " + base64.b64encode(plain)) == login


@pytest.mark.parametrize("header", [None, b"Basic !!!", b"Bearer YTpi", b"Basic"])
def test_invalid_basic_credentials(header: bytes | None) -> None:
    """Text that is not the Base64 of a login is rejected."""
    assert basic_login(header) is None


@pytest.mark.parametrize(
    ("query", "token", "kept"),
    [
        (b"", None, b""),
        (b"a=1&b=%20", None, b"a=1&b=%20"),
        (b"access_token=t", "t", b""),
        (b"a=1&access_token=t%2B1&b=2", "t+1", b"a=1&b=2"),
        (b"access%5Ftoken=t", "t", b""),
        (b"access_token=", None, b""),
        (b"access_token", None, b""),
        (b"access_token=one&access_token=two&x", "two", b"x"),
        (b"my_access_token=t&q=access", None, b"my_access_token=t&q=access"),
    ],
)
def test_take_query_token(query: bytes, token: str | None, kept: bytes) -> None:
    """The parameter is taken out, however it is written; all others stay as they were sent."""
    assert split_query_token(query) == (token, kept)
