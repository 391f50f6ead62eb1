"""Requests and responses of both token endpoints.

A body is a form under either spelling of its content type, or a JSON object. Unknown fields are
ignored, and known fields must not repeat (RFC 6749, section 3.2). Errors name the field.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal
from urllib.parse import unquote_plus

import msgspec
from litestar.openapi.spec import Example, OpenAPIMediaType, OpenAPIType, RequestBody, Schema

from libs.common.decoding import JSON_ERRORS
from libs.common.errors import (
    InvalidInput,
    MalformedRequest,
    TooLarge,
    Unauthenticated,
    UnsupportedMedia,
)
from libs.common.identity import OWN_CONSOLE_CLIENT_ID
from services.auth.tokens.writer import LoginOrigin

MAX_AGENT_CHARACTERS = 255
"""Maximum stored characters of a user agent."""


class RequestOrigin(msgspec.Struct, frozen=True):
    """Client address and user agent of a token request, and the tenant that it names."""

    address: str
    """Empty if the gateway did not send it."""
    request_id: str = ""
    tenant: str | None = None
    """The header `TENANT_ID`, for users only."""
    agent: str = ""
    """The header `User-Agent`, for users only."""

    @property
    def login_origin(self) -> LoginOrigin:
        """Return address and user agent, to store with a session."""
        return LoginOrigin(self.address, self.agent[:MAX_AGENT_CHARACTERS])


class ClientCredentialsGrant(msgspec.Struct, frozen=True):
    """The grant `client_credentials`."""

    client_id: str
    client_secret: str


class ApplicationRefreshGrant(msgspec.Struct, frozen=True):
    """The grant `refresh_token` of applications.

    If present, client id and secret must match the application.
    """

    refresh_token: str
    client_id: str | None = None
    client_secret: str | None = None


ApplicationGrant = ClientCredentialsGrant | ApplicationRefreshGrant


class TokenDetails(msgspec.Struct, frozen=True):
    """The tokens of an application, and their remaining lifetimes in seconds."""

    access_token: str
    refresh_token: str
    expires_in: int
    refresh_token_expires_in: int


class PasswordGrant(msgspec.Struct, frozen=True):
    """The grant `password`."""

    client: ClientCredentialsGrant
    """Client id and secret of the console; the secret of the built-in console is empty."""
    username: str
    """The email address."""
    password: str


class UserRefreshGrant(msgspec.Struct, frozen=True):
    """The grant `refresh_token` of users."""

    client: ClientCredentialsGrant
    refresh_token: str


UserGrant = PasswordGrant | UserRefreshGrant


class ConsoleTokens(msgspec.Struct, frozen=True, kw_only=True):
    """A pair of tokens. `expires_in` is the access token's lifetime in seconds."""

    access_token: str
    refresh_token: str
    token_type: str = "Bearer"  # noqa: S105 - it is the scheme of the header
    expires_in: int


class ConsoleTokenAnswer(msgspec.Struct, kw_only=True):
    """Tokens at top level, as RFC 6749 specifies, and in `data`, for consoles."""

    access_token: str
    refresh_token: str
    token_type: str
    expires_in: int
    data: ConsoleTokens
    status: Literal["Success"] = "Success"
    request_id: str


FORM_TYPES = ("application/x-www-form-urlencoded", "x-www-form-urlencoded")
"""Content types of a form: clients send the first, the vendor's documentation names the second."""
JSON_TYPE = "application/json"
APPLICATION_FIELDS = frozenset({"grant_type", "client_id", "client_secret", "refresh_token"})
"""Known fields of `POST /oauth/token`."""
USER_FIELDS = APPLICATION_FIELDS | {"username", "password"}
MAX_BODY_BYTES = 16 * 1024
"""Maximum bytes of a token request; a typical one has about 200."""

_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def parse_application_grant(content_type: str | None, body: bytes) -> ApplicationGrant:
    """Parse the body of `POST /oauth/token`; the default content type is a form.

    Raises `UnsupportedMedia`, `TooLarge`, `MalformedRequest`, and `InvalidInput` with the field.
    """
    fields = _read_fields(content_type, body, APPLICATION_FIELDS)
    match _read_required(fields, "grant_type"):
        case "client_credentials":
            return ClientCredentialsGrant(
                _read_required(fields, "client_id"), _read_required(fields, "client_secret")
            )
        case "refresh_token":
            return ApplicationRefreshGrant(
                _read_required(fields, "refresh_token"),
                _read_optional(fields, "client_id"),
                _read_optional(fields, "client_secret"),
            )
        case _:
            raise InvalidInput("must be client_credentials or refresh_token", field="grant_type")


TokenErrorCode = Literal[
    "invalid_request", "invalid_client", "invalid_grant", "unsupported_grant_type"
]


def build_user_token_error(
    code: TokenErrorCode, text: str, field: str | None = None
) -> Unauthenticated:
    """Return the 401 error of `POST /oauth2/token`.

    `code` is from RFC 6749, section 5.2.
    """
    return Unauthenticated(f"{code}:{text}", field=field)


def parse_user_grant(content_type: str | None, body: bytes) -> UserGrant:
    """Parse the body of `POST /oauth2/token`; the default content type is a form.

    Raises `Unauthenticated` with the field, `UnsupportedMedia` and `TooLarge`.
    """
    try:
        fields = _read_fields(content_type, body, USER_FIELDS)
    except InvalidInput as error:
        raise build_user_token_error("invalid_request", error.text, error.field) from error
    client_id = _read_user_field(fields, "client_id")
    secret = "" if client_id == OWN_CONSOLE_CLIENT_ID else _read_user_field(fields, "client_secret")
    client = ClientCredentialsGrant(client_id, secret)
    match _read_user_field(fields, "grant_type"):
        case "password":
            return PasswordGrant(
                client,
                _read_user_field(fields, "username"),
                _read_user_field(fields, "password"),
            )
        case "refresh_token":
            return UserRefreshGrant(client, _read_user_field(fields, "refresh_token"))
        case _:
            raise build_user_token_error(
                "unsupported_grant_type", "send password or refresh_token.", "grant_type"
            )


def build_grant_schema(name: str, title: str, needed: Mapping[str, str], **optional: str) -> Schema:
    """Return the OpenAPI schema `name` of the grant type `title`.

    `needed` and `optional` are descriptions of fields, by name.
    """
    return Schema(
        type=OpenAPIType.OBJECT,
        title=name,
        description=f"A token request with the grant type `{title}`.",
        required=["grant_type", *needed],
        properties={
            "grant_type": Schema(type=OpenAPIType.STRING, const=title),
            **{
                name: Schema(type=OpenAPIType.STRING, pattern=r"\S", description=description)
                for name, description in {**needed, **optional}.items()
            },
        },
    )


def build_request_body(*grants: Schema, **example: str) -> RequestBody:
    """Return an OpenAPI form body with one of `grants`; `example` is for the first.

    JSON is accepted too but not documented, because client generators do not support the choice.
    """
    media = OpenAPIMediaType(
        schema=Schema(one_of=list(grants)),
        examples={example["grant_type"]: Example(value=example)},
    )
    return RequestBody(required=True, content={FORM_TYPES[0]: media})


def _read_fields(
    content_type: str | None, body: bytes, known_fields: Collection[str]
) -> dict[str, Any]:
    """Parse the fields of a token request; `known_fields` fields must not repeat.

    Raises `UnsupportedMedia`, `TooLarge`, `MalformedRequest`, and `InvalidInput` with the field.
    """
    media_type = (content_type or FORM_TYPES[0]).partition(";")[0].strip().lower()
    if media_type not in (*FORM_TYPES, JSON_TYPE):
        raise UnsupportedMedia(f"send {FORM_TYPES[0]}, not {media_type!r}", field="Content-Type")
    if len(body) > MAX_BODY_BYTES:
        raise TooLarge(f"a token request has at most {MAX_BODY_BYTES} bytes")
    return _read_json(body) if media_type == JSON_TYPE else _read_form(body, known_fields)


def _read_required(fields: Mapping[str, Any], name: str) -> str:
    """Return a field's text; raise `InvalidInput` if it is missing, blank or no text."""
    value = _read_optional(fields, name)
    if value is None:
        raise InvalidInput("is missing", field=name, code="parameter_missing")
    return value


def _read_optional(fields: Mapping[str, Any], name: str) -> str | None:
    """Return a field's text or None; raise `InvalidInput` if it is blank or no text."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidInput("must be a string", field=name)
    if not value.strip():
        raise InvalidInput("must not be blank", field=name)
    return value


def _read_form(body: bytes, known_fields: Collection[str]) -> dict[str, str]:
    try:
        text = body.decode("ascii")
        if _BROKEN_ESCAPE.search(text):
            raise MalformedRequest("the form has a '%' without two hex digits after it")
        pairs = [pair.partition("=") for pair in text.strip("\r\n").split("&") if pair]
        fields: dict[str, str] = {}
        for raw_name, equals, raw_value in pairs:
            name = unquote_plus(raw_name, errors="strict")
            if not equals:
                raise MalformedRequest(f"the form has {name[:64]!r} without '='")
            if name in fields and name in known_fields:
                raise InvalidInput("must not be repeated", field=name)
            fields[name] = unquote_plus(raw_value, errors="strict")
    except UnicodeDecodeError as error:
        raise MalformedRequest("the form is not percent-encoded UTF-8") from error
    return fields


def _read_json(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.ValidationError as error:
        raise MalformedRequest("the body is not a JSON object") from error
    except JSON_ERRORS as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from error


def _read_user_field(fields: Mapping[str, Any], name: str) -> str:
    try:
        return _read_required(fields, name)
    except InvalidInput as error:
        text = "is null" if error.code == "parameter_missing" else error.message
        raise build_user_token_error("invalid_request", f"{name} {text}.", name) from error
