"""Reading a grant of the console, without a server."""

from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.errors import ThingwayError, Unauthenticated
from services.auth.sign_in.token_requests import (
    ClientCredentialsGrant,
    PasswordGrant,
    UserRefreshGrant,
    parse_user_grant,
)

FORM = "application/x-www-form-urlencoded"
CLIENT = ClientCredentialsGrant("iab", "milesight*iab")


def test_both_grants_are_read_from_forms_and_json():
    """As consoles send them: the `*` is not escaped."""
    form = (
        b"grant_type=password&username=a%40b.de&password=P%2B1"
        b"&client_id=iab&client_secret=milesight*iab"
    )
    json = (
        b'{"grant_type":"refresh_token","refresh_token":"r","client_id":"iab",'
        b'"client_secret":"milesight*iab","username":null,"scope":1}'
    )

    assert parse_user_grant(FORM, form) == PasswordGrant(CLIENT, "a@b.de", "P+1")
    assert parse_user_grant("application/json", json) == UserRefreshGrant(CLIENT, "r")


@pytest.mark.parametrize("name", ["username", "password", "client_id", "client_secret"])
@pytest.mark.parametrize("change", ["missing", "blank", "twice"])
def test_each_fault_is_a_401_that_names_its_field(name, change):
    """With the OAuth code first."""
    fields = {
        "grant_type": "password",
        "username": "a",
        "password": "b",
        "client_id": "c",
        "client_secret": "d",
    }
    pairs = [
        (key, " " if (key, change) == (name, "blank") else value)
        for key, value in fields.items()
        if (key, change) != (name, "missing")
    ]
    pairs += [(name, "again")] if change == "twice" else []

    with pytest.raises(Unauthenticated, match=f"^invalid_request:{name}") as caught:
        parse_user_grant(FORM, urlencode(pairs).encode())

    assert caught.value.field == name


@given(st.binary(max_size=300), st.sampled_from([FORM, "application/json", "text/plain"]))
def test_no_body_is_our_fault(body, content_type):
    """Any body is accepted or rejected with a 4xx error."""
    status = 200
    try:
        parse_user_grant(content_type, body)
    except ThingwayError as error:
        status = error.status

    assert status < 500
