"""Reads the body of `POST /oauth2/token`: a form or a JSON object, as `/oauth/token` does."""

from collections.abc import Mapping
from typing import Any

from libs.common.errors import InvalidInput
from services.auth.sign_in.refusals import refused
from services.auth.sign_in.schemas import (
    ConsoleCredentials,
    Grant,
    PasswordGrant,
    RefreshGrant,
)
from services.auth.tokens.form import read_fields, required

FIELDS = frozenset(
    {"grant_type", "client_id", "client_secret", "username", "password", "refresh_token"}
)


def read_grant(content_type: str | None, body: bytes) -> Grant:
    """Read a grant; a missing content type counts as a form.

    Raises `Unauthenticated` that names the field, `UnsupportedMedia` and `TooLarge`.
    """
    try:
        fields = read_fields(content_type, body, FIELDS)
    except InvalidInput as error:
        raise refused("invalid_request", error.text, error.field) from error
    client = ConsoleCredentials(_given(fields, "client_id"), _given(fields, "client_secret"))
    match _given(fields, "grant_type"):
        case "password":
            return PasswordGrant(client, _given(fields, "username"), _given(fields, "password"))
        case "refresh_token":
            return RefreshGrant(client, _given(fields, "refresh_token"))
        case _:
            raise refused("unsupported_grant_type", "send password or refresh_token.", "grant_type")


def _given(fields: Mapping[str, Any], name: str) -> str:
    try:
        return required(fields, name)
    except InvalidInput as error:
        text = "is null" if error.code == "parameter_missing" else error.message
        raise refused("invalid_request", f"{name} {text}.", name) from error
