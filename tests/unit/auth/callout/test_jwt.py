import base64
import hashlib
import json
import time

import pytest

from libs.common.bus.nkeys import KeyKind, KeyPair, verify
from services.auth.callout import jwt
from services.auth.callout.permissions import Permissions

SERVER = KeyPair.create(KeyKind.SERVER)
ISSUER = KeyPair.create(KeyKind.ACCOUNT)
USER = KeyPair.create(KeyKind.USER).public_key


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def request_token(key=SERVER, *, nats=None, **claims) -> bytes:
    """What nats-server 2.15.1 sends for an MQTT client, as recorded."""
    body = {
        "aud": "nats-authorization-request",
        "exp": int(time.time()) + 5,
        "jti": "IYDR6BJD47NVSJ4F6HQKZ5RGV77W3Y6DMTT6INGV3WW63SZVF43A",
        "iat": int(time.time()),
        "iss": SERVER.public_key,
        "sub": ISSUER.public_key,
        "nats": {
            "server_id": {
                "name": "thingway",
                "host": "127.0.0.1",
                "id": SERVER.public_key,
                "version": "2.15.1",
            },
            "user_nkey": USER,
            "client_info": {
                "host": "127.0.0.1",
                "id": 9,
                "user": "D1",
                "kind": "Client",
                "type": "mqtt",
                "mqtt_id": "D1-client",
            },
            "connect_opts": {"auth_token": "k1", "user": "D1", "pass": "k1", "protocol": 0},
            "type": "authorization_request",
            "version": 2,
            **(nats or {}),
        },
        **claims,
    }
    signed = f"{b64(b'{}')}.{b64(json.dumps(body).encode())}"
    return f"{signed}.{b64(key.sign(signed.encode()))}".encode()


def opened(token: str) -> dict:
    """Check header, signature and `jti` of one of our JWTs, and return its claims."""
    header, payload, signature = token.split(".")
    claims = json.loads(unb64(payload))
    assert json.loads(unb64(header)) == {"typ": "JWT", "alg": "ed25519-nkey"}
    assert verify(claims["iss"], KeyKind.ACCOUNT, f"{header}.{payload}".encode(), unb64(signature))
    rest = {name: value for name, value in claims.items() if name != "jti"}
    digest = hashlib.new("sha512_256", json.dumps(rest, separators=(",", ":")).encode()).digest()
    assert claims.pop("jti") == base64.b32encode(digest).decode().rstrip("=")
    return claims


def test_a_recorded_request_is_decoded():
    """It contains server, connection and credentials."""
    request = jwt.decode_request(request_token())

    assert request.server_id.id == SERVER.public_key
    assert request.user_nkey == USER
    assert (request.client_info.type, request.client_info.mqtt_id) == ("mqtt", "D1-client")
    assert (request.connect_opts.user, request.connect_opts.password) == ("D1", "k1")


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"a.b",
        b"a.b.c",
        b"\xff\xfe.\xff.\xff",
        request_token(KeyPair.create(KeyKind.SERVER)),
        request_token(aud="another-purpose"),
        request_token(nats={"type": "user"}),
        request_token(exp=int(time.time()) - 1),
        request_token(iss=ISSUER.public_key),
    ],
    ids=["empty", "two parts", "no base64", "no ascii", "another key", "audience", "type",
         "expired", "not a server"],
)  # fmt: skip
def test_invalid_and_stale_requests_are_rejected(token):
    """Broken, forged, foreign and stale requests raise `InvalidRequestError`, nothing else."""
    with pytest.raises(jwt.InvalidRequestError):
        jwt.decode_request(token)


def test_the_signer_must_be_the_server_the_request_names():
    """A valid signature of another server is not enough: the answer goes to the named one."""
    other = KeyPair.create(KeyKind.SERVER)

    with pytest.raises(jwt.InvalidRequestError, match="signed"):
        jwt.decode_request(request_token(other, iss=other.public_key))


def test_the_user_jwt_names_the_user_its_account_and_its_permissions():
    """The user JWT is about the connection's own key and carries exactly the permissions."""
    request = jwt.decode_request(request_token())
    permissions = Permissions(("a.>",), ("b", "c"), "THINGWAY")

    claims = opened(jwt.build_user_jwt(request, name="D1", permissions=permissions, key=ISSUER))

    assert claims["sub"] == USER
    assert (claims["iss"], claims["aud"], claims["name"]) == (
        ISSUER.public_key,
        "THINGWAY",
        "D1",
    )
    assert claims["nats"] == {
        "data": -1,
        "payload": -1,
        "pub": {"allow": ["a.>"]},
        "sub": {"allow": ["b", "c"]},
        "subs": -1,
        "type": "user",
        "version": 2,
    }


def test_a_responder_may_answer_each_request_once():
    """It has a minute; other users have no such right."""
    request = jwt.decode_request(request_token())
    permissions = Permissions(("a",), ("b",), 7, answers=True)

    claims = opened(jwt.build_user_jwt(request, name="i", permissions=permissions, key=ISSUER))

    assert claims["nats"]["resp"] == {"max": 1, "ttl": 60 * 10**9}


def test_the_answer_is_for_the_server_and_about_the_user():
    """Both responses contain the server and the connection's key."""
    request = jwt.decode_request(request_token())

    accepted = opened(jwt.build_acceptance(request, "a.b.c", ISSUER).decode())
    refused = opened(jwt.build_rejection(request, "no such device", ISSUER).decode())

    for claims in (accepted, refused):
        assert (claims["aud"], claims["sub"]) == (SERVER.public_key, USER)
        assert claims["nats"].pop("type") == "authorization_response"
        assert claims["nats"].pop("version") == 2
    assert accepted["nats"] == {"jwt": "a.b.c"}
    assert refused["nats"] == {"error": "no such device"}
