"""Reading a token request, without a server."""

from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.errors import InvalidInput, MalformedRequest, ThingwayError, UnsupportedMedia
from services.auth.sign_in.token_requests import (
    FORM_TYPES,
    ApplicationRefreshGrant,
    ClientCredentialsGrant,
    parse_application_grant,
)

FORM = FORM_TYPES[0]


def test_both_grants_are_read():
    """Fields that are not asked for, such as `scope`, are ignored, even when they come twice."""
    credentials = (
        b"grant_type=client_credentials&client_id=a%20b&client_secret=c%2Bd&scope=x&scope=y&"
    )
    plain = b"grant_type=refresh_token&refresh_token=r"
    refresh = b'{"grant_type": "refresh_token", "refresh_token": "r", "client_id": "c"}'

    assert parse_application_grant(FORM, credentials) == ClientCredentialsGrant("a b", "c+d")
    assert parse_application_grant("application/json", refresh) == ApplicationRefreshGrant("r", "c")
    assert parse_application_grant(None, plain) == ApplicationRefreshGrant("r")


@pytest.mark.parametrize("name", ["client_id", "client_secret"])
@pytest.mark.parametrize("change", ["missing", "blank", "twice"])
def test_each_fault_names_its_field(name, change):
    """Missing, blank and duplicate fields are 400."""
    fields = {"grant_type": "client_credentials", "client_id": "a", "client_secret": "b"}
    pairs = [
        (key, " " if (key, change) == (name, "blank") else value)
        for key, value in fields.items()
        if (key, change) != (name, "missing")
    ]
    pairs += [(name, "again")] if change == "twice" else []

    with pytest.raises(InvalidInput) as caught:
        parse_application_grant(FORM, urlencode(pairs).encode())

    assert (caught.value.status, caught.value.field) == (400, name)


@pytest.mark.parametrize("body", [b"%", b"a=%G0", b"a=%ff", "ä=1".encode(), b"nothing"])
def test_a_broken_form_is_malformed(body):
    """Broken escapes, foreign bytes and names without values."""
    with pytest.raises(MalformedRequest):
        parse_application_grant(FORM, body)


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml; charset=utf-8", " "])
def test_other_types_are_unsupported(content_type):
    """415 says which type is read."""
    with pytest.raises(UnsupportedMedia, match="x-www-form-urlencoded"):
        parse_application_grant(content_type, b"")


@given(st.binary(max_size=300), st.sampled_from([*FORM_TYPES, "application/json"]))
def test_no_body_is_our_fault(body, content_type):
    """Any body is accepted or rejected with a 4xx error."""
    status = 200
    try:
        parse_application_grant(content_type, body)
    except ThingwayError as error:
        status = error.status

    assert status < 500


@given(st.text(min_size=1).filter(str.strip), st.text(min_size=1).filter(str.strip))
def test_every_text_travels_through_a_form(client_id, secret):
    """Percent-encoded text is decoded unchanged."""
    fields = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret}

    read = parse_application_grant(FORM, urlencode(fields).encode())

    assert read == ClientCredentialsGrant(client_id, secret)
