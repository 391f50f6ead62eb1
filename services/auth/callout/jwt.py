"""JWTs of the NATS auth callout: request, response, and the user in the response.

Source: nats-server 2.15 `server/auth_callout.go` and https://github.com/nats-io/jwt (v2,
`authorization_claims.go`, `user_claims.go`, `claims.go`). NATS signs JWTs with NKEYS and its own
algorithm (`ed25519-nkey`), which general JWT libraries do not support.
"""

import base64
import hashlib
import time
from typing import Any

import msgspec

from libs.common.bus.nkeys import KeyKind, KeyPair, NkeyError, verify
from services.auth.callout.permissions import Permissions

_CLAIMS_VERSION = 2
_UNLIMITED = -1
_RESPONSE_PERMISSION = {"max": 1, "ttl": 60_000_000_000}
"""Permission to respond once to each request, within a minute (`ttl` in ns)."""
_REQUEST_AUDIENCE = "nats-authorization-request"
_REQUEST_TYPE = "authorization_request"


class InvalidRequestError(ValueError):
    """A callout request that is malformed, expired or not signed by its server."""


class ServerId(msgspec.Struct, frozen=True):
    """The nats-server that sent the request."""

    id: str
    """The server's public key and the audience of the response."""


class ClientInfo(msgspec.Struct, frozen=True):
    """The connection to authorize."""

    host: str = ""
    """IP address."""
    id: int = 0
    """The connection id (`cid`) within the server."""
    type: str = ""
    """`nats`, `mqtt` or `websocket`."""
    mqtt_id: str = ""
    """The MQTT client id."""


class ConnectOptions(msgspec.Struct, frozen=True):
    """The credentials of the client: over MQTT its user name and password."""

    user: str = ""
    password: str = msgspec.field(name="pass", default="")


class AuthorizationRequest(msgspec.Struct, frozen=True):
    """The `nats` claim of a callout request."""

    server_id: ServerId
    user_nkey: str
    """A public key for this connection only, and the subject of the user JWT."""
    client_info: ClientInfo
    connect_opts: ConnectOptions
    type: str = ""


class _RequestClaims(msgspec.Struct, frozen=True):
    iss: str
    aud: str
    exp: int
    nats: AuthorizationRequest


def _encode_base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode_base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


_ENCODED_HEADER = _encode_base64url(b'{"typ":"JWT","alg":"ed25519-nkey"}')


def _sign_claims(claims: dict[str, Any], key: KeyPair) -> str:
    """Encode and sign `claims`, with the hash of the claims as `jti`."""
    digest = hashlib.new("sha512_256", msgspec.json.encode(claims)).digest()
    jti = base64.b32encode(digest).decode().rstrip("=")
    body = f"{_ENCODED_HEADER}.{_encode_base64url(msgspec.json.encode({'jti': jti, **claims}))}"
    return f"{body}.{_encode_base64url(key.sign(body.encode()))}"


def decode_request(token: bytes, *, now: float | None = None) -> AuthorizationRequest:
    """Decode a callout request and verify its signature and expiry.

    The signature matters: any client that may send JetStream requests can name the callout subject
    as its reply subject, and nats-server does not check reply subjects. Verification takes 0.1 ms.
    Raises `InvalidRequestError`.
    """
    try:
        header, payload, signature = token.decode("ascii").split(".")
        claims = msgspec.json.decode(_decode_base64url(payload), type=_RequestClaims)
        signed = verify(
            claims.iss, KeyKind.SERVER, f"{header}.{payload}".encode(), _decode_base64url(signature)
        )
    except (ValueError, NkeyError, msgspec.MsgspecError) as exc:
        raise InvalidRequestError(f"not a callout request: {exc}") from exc
    if not signed or claims.iss != claims.nats.server_id.id:
        raise InvalidRequestError("the request is not signed by the server it names")
    if claims.aud != _REQUEST_AUDIENCE or claims.nats.type != _REQUEST_TYPE:
        raise InvalidRequestError("the JWT is not an authorization request")
    if claims.exp < (time.time() if now is None else now):
        raise InvalidRequestError("the request has expired")
    return claims.nats


def build_user_jwt(
    request: AuthorizationRequest,
    *,
    name: str,
    permissions: Permissions,
    key: KeyPair,
) -> str:
    """Return the JWT of the user that the connection gets.

    `name` replaces the user name of the client and appears in system events and `CONNZ`. The
    audience is the NATS account of the user. `key` must be the key of `issuer` in the settings of
    nats-server.
    """
    return _sign_claims(
        {
            "aud": permissions.account,
            "iat": int(time.time()),
            "iss": key.public_key,
            "name": name,
            "nats": {
                "data": _UNLIMITED,
                "payload": _UNLIMITED,
                "pub": {"allow": permissions.publish},
                "sub": {"allow": permissions.subscribe},
                **({"resp": _RESPONSE_PERMISSION} if permissions.answers else {}),
                "subs": _UNLIMITED,
                "type": "user",
                "version": _CLAIMS_VERSION,
            },
            "sub": request.user_nkey,
        },
        key,
    )


def build_acceptance(request: AuthorizationRequest, user: str, key: KeyPair) -> bytes:
    """Return the response that admits the connection as `user` (a user JWT)."""
    return _build_response(request, {"jwt": user}, key)


def build_rejection(request: AuthorizationRequest, reason: str, key: KeyPair) -> bytes:
    """Return the response that rejects the connection.

    nats-server logs `reason`; the client receives only "authorization violation".
    """
    return _build_response(request, {"error": reason}, key)


def _build_response(request: AuthorizationRequest, answer: dict[str, str], key: KeyPair) -> bytes:
    return _sign_claims(
        {
            "aud": request.server_id.id,
            "iat": int(time.time()),
            "iss": key.public_key,
            "nats": {**answer, "type": "authorization_response", "version": _CLAIMS_VERSION},
            "sub": request.user_nkey,
        },
        key,
    ).encode()
