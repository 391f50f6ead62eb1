"""The three JWTs of NATS's auth callout: the server's request, our answer, the user inside it.

Source: nats-server 2.15 `server/auth_callout.go` and https://github.com/nats-io/jwt (v2,
`authorization_claims.go`, `user_claims.go`, `claims.go`). NATS's JWTs are signed with NKEYS under
an algorithm of its own (`ed25519-nkey`), which general JWT libraries do not know.
"""

import base64
import hashlib
import time
from typing import Any

import msgspec

from libs.common.bus.nkeys import KeyKind, KeyPair, NkeyError, verify
from services.auth.callout.permissions import Permissions

_VERSION = 2
_UNLIMITED = -1
_ANSWER = {"max": 1, "ttl": 60_000_000_000}
"""One answer to each request, within a minute (ns)."""
_REQUEST_AUDIENCE = "nats-authorization-request"
_REQUEST_TYPE = "authorization_request"


class InvalidRequestError(ValueError):
    """A callout request that is not one, or is not signed by the server it names."""


class ServerId(msgspec.Struct, frozen=True):
    """The nats-server that asks."""

    id: str
    """Its public key, and the audience of the answer."""


class ClientInfo(msgspec.Struct, frozen=True):
    """The connection that wants in, as the server sees it."""

    host: str = ""
    """Its address."""
    id: int = 0
    """The connection id (`cid`) within the server."""
    type: str = ""
    """`nats`, `mqtt` or `websocket`."""
    mqtt_id: str = ""
    """The MQTT client id."""


class ConnectOptions(msgspec.Struct, frozen=True):
    """What the client said of itself: over MQTT user name and password."""

    user: str = ""
    password: str = msgspec.field(name="pass", default="")


class AuthorizationRequest(msgspec.Struct, frozen=True):
    """The `nats` part of a request: who asks, about whom, with which credentials."""

    server_id: ServerId
    user_nkey: str
    """A public key made for this one connection; the answer must be about it."""
    client_info: ClientInfo
    connect_opts: ConnectOptions
    type: str = ""


class _RequestClaims(msgspec.Struct, frozen=True):
    iss: str
    aud: str
    exp: int
    nats: AuthorizationRequest


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


_HEADER = _b64(b'{"typ":"JWT","alg":"ed25519-nkey"}')


def _sign(claims: dict[str, Any], key: KeyPair) -> str:
    """Encode and sign `claims`; their `jti` is the hash of themselves without it."""
    digest = hashlib.new("sha512_256", msgspec.json.encode(claims)).digest()
    jti = base64.b32encode(digest).decode().rstrip("=")
    body = f"{_HEADER}.{_b64(msgspec.json.encode({'jti': jti, **claims}))}"
    return f"{body}.{_b64(key.sign(body.encode()))}"


def decode_request(token: bytes, *, now: float | None = None) -> AuthorizationRequest:
    """Read a callout request and check that the server it names signed it, and lately.

    The signature matters: anyone who may make a JetStream request can name this very subject as
    its reply subject, and nats-server does not check where a reply goes. Checking it costs 0.1 ms.
    Raises `InvalidRequestError`.
    """
    try:
        header, payload, signature = token.decode("ascii").split(".")
        claims = msgspec.json.decode(_unb64(payload), type=_RequestClaims)
        signed = verify(
            claims.iss, KeyKind.SERVER, f"{header}.{payload}".encode(), _unb64(signature)
        )
    except (ValueError, NkeyError, msgspec.MsgspecError) as exc:
        raise InvalidRequestError(f"not a callout request: {exc}") from exc
    if not signed or claims.iss != claims.nats.server_id.id:
        raise InvalidRequestError("the request is not signed by the server it names")
    if claims.aud != _REQUEST_AUDIENCE or claims.nats.type != _REQUEST_TYPE:
        raise InvalidRequestError("a JWT of another purpose")
    if claims.exp < (time.time() if now is None else now):
        raise InvalidRequestError("the request has expired")
    return claims.nats


def user_jwt(
    request: AuthorizationRequest,
    *,
    name: str,
    permissions: Permissions,
    key: KeyPair,
) -> str:
    """Build the JWT of the user that the connection becomes.

    `name` replaces the user name the client gave, and is what system events and `CONNZ` show;
    the audience is the account that it is put into. The key must be the configured `issuer`.
    """
    return _sign(
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
                **({"resp": _ANSWER} if permissions.answers else {}),
                "subs": _UNLIMITED,
                "type": "user",
                "version": _VERSION,
            },
            "sub": request.user_nkey,
        },
        key,
    )


def accept(request: AuthorizationRequest, user: str, key: KeyPair) -> bytes:
    """Build the response that lets the connection in as `user` (a user JWT)."""
    return _response(request, {"jwt": user}, key)


def refuse(request: AuthorizationRequest, reason: str, key: KeyPair) -> bytes:
    """Build the response that turns the connection away.

    The client only hears "authorization violation"; `reason` goes to the server's log.
    """
    return _response(request, {"error": reason}, key)


def _response(request: AuthorizationRequest, answer: dict[str, str], key: KeyPair) -> bytes:
    return _sign(
        {
            "aud": request.server_id.id,
            "iat": int(time.time()),
            "iss": key.public_key,
            "nats": {**answer, "type": "authorization_response", "version": _VERSION},
            "sub": request.user_nkey,
        },
        key,
    ).encode()
