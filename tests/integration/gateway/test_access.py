"""Who comes in: tokens, device keys, and what the service is told of the caller."""

import logging

import httpx
import pytest

from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.tokens import token_hash

from .conftest import DEVICES, Gateway, Recorder, Start


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_bearer_token_lets_in(gateway: Gateway, device: Recorder, scheme: str) -> None:
    """A valid token lets in whatever the case of the scheme; the service gets who it is."""
    token = await gateway.token(name="app")
    reply = await gateway.http.get(f"{DEVICES}/5", headers={"Authorization": f"{scheme} {token}"})
    assert reply.status_code == 200
    principal = gateway.verifier.verify(device.last.headers["x-thingway-principal"])
    assert principal == Principal(
        kind=PrincipalKind.APPLICATION, tenant="t1", subject=principal.subject, name="app"
    )


async def test_query_token_lets_in_and_is_removed(
    gateway: Gateway, device: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """`access_token` lets in; neither the service nor a log sees it."""
    token = await gateway.token()
    with caplog.at_level(logging.DEBUG):
        reply = await gateway.http.get(f"{DEVICES}/5?a=1&access_token={token}&b=2")
    assert (reply.status_code, device.last.query) == (200, "a=1&b=2")
    foreign = ("http", "uvicorn.access")  # the client's, and one that services switch off
    ours = [line.getMessage() for line in caplog.records if not line.name.startswith(foreign)]
    assert not any(token in line for line in ours)


@pytest.mark.parametrize("path", ["/user", "/api/v1/user"])
async def test_a_query_token_of_a_user_lets_nobody_in(
    gateway: Gateway, auth: Recorder, path: str
) -> None:
    """Only the open API takes `access_token`: it would reach the logs of proxies."""
    token = await gateway.token(PrincipalKind.USER)
    refused = await gateway.http.get(f"{path}?access_token={token}")
    assert (refused.status_code, auth.seen) == (401, [])
    headers = {"Authorization": f"Bearer {token}"}
    assert (await gateway.http.get(path, headers=headers)).status_code != 401


@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YTpi"},
     {"Authorization": "Bearer"}, {"Authorization": "Bearer \xe4\xf6"}],
)  # fmt: skip
async def test_bad_token_is_401(gateway: Gateway, device: Recorder, headers) -> None:
    """No token or a wrong one is 401 with a challenge, in the open API's envelope."""
    raw = {name: value.encode("latin-1") for name, value in headers.items()}
    reply = await gateway.http.get(f"{DEVICES}/5", headers=raw)
    assert (reply.status_code, reply.json()["errCode"]) == (401, "authentication_failed")
    assert reply.json()["requestId"] == reply.headers["x-request-id"]
    assert reply.headers["www-authenticate"].startswith("Bearer")
    assert device.seen == []


async def test_revoked_token_is_401_at_once(gateway: Gateway) -> None:
    """The very next request after revocation is refused."""
    token = await gateway.token()
    headers = {"Authorization": f"Bearer {token}"}
    assert (await gateway.http.get(f"{DEVICES}/5", headers=headers)).status_code == 200
    await gateway.redis.delete(f"tw:token:{token_hash(token)}")
    assert (await gateway.http.get(f"{DEVICES}/5", headers=headers)).status_code == 401


@pytest.mark.parametrize("kind", [PrincipalKind.DEVICE, PrincipalKind.USER])
async def test_principal_of_another_kind_is_403(gateway: Gateway, kind: PrincipalKind) -> None:
    """A token of a device or a person does not open the applications' API."""
    headers = {"Authorization": f"Bearer {await gateway.token(kind)}"}
    reply = await gateway.http.get(f"{DEVICES}/5", headers=headers)
    assert (reply.status_code, reply.json()["errCode"]) == (403, "forbidden_permission")


async def test_device_comes_in_by_its_key(gateway: Gateway, device: Recorder) -> None:
    """SN and key open the device's own paths, whatever the case of the SN."""
    sn, key = await gateway.device()
    reply = await gateway.http.post(
        f"/ingest/v1/{sn.upper()}/report", auth=(sn.lower(), key), json={}
    )
    assert reply.status_code == 200
    principal = gateway.verifier.verify(device.last.headers["x-thingway-principal"])
    assert principal == Principal(kind=PrincipalKind.DEVICE, tenant="t1", subject=sn)
    assert "authorization" not in device.last.headers


async def test_wrong_device_key_is_401(gateway: Gateway, device: Recorder) -> None:
    """A wrong key, or none, is 401 with the challenge of HTTP Basic."""
    sn, _ = await gateway.device()
    for auth in (httpx.BasicAuth(sn, "wrong"), None):
        reply = await gateway.http.post(f"/ingest/v1/{sn}/report", auth=auth, json={})
        assert (reply.status_code, reply.json()["errCode"]) == (401, "authentication_failed")
        assert reply.headers["www-authenticate"].startswith("Basic")
    assert device.seen == []


async def test_another_devices_path_is_403(gateway: Gateway, device: Recorder) -> None:
    """A device with its own key may not speak for another SN."""
    sn, key = await gateway.device()
    other, _ = await gateway.device()
    reply = await gateway.http.post(f"/ingest/v1/{other}/report", auth=(sn, key), json={})
    assert (reply.status_code, reply.json()["errCode"]) == (403, "forbidden_permission")
    assert device.seen == []


async def test_unknown_device_while_auth_is_away_is_503(gateway: Gateway) -> None:
    """A device that Redis does not know is asked for at auth; without auth it is 503."""
    reply = await gateway.http.post("/ingest/v1/NOBODY/report", auth=("NOBODY", "k"), json={})
    assert (reply.status_code, reply.json()["errCode"]) == (503, "service_unavailable")


async def test_without_redis_nobody_comes_in(start: Start, device: Recorder) -> None:
    """While Redis is away requests are 503 with Retry-After; the probes answer."""
    async with start(redis_url="redis://127.0.0.1:1/0") as gateway:
        reply = await gateway.http.get(f"{DEVICES}/5", headers={"Authorization": "Bearer x"})
        health = await gateway.http.get("/healthz")
        ready = await gateway.http.get("/readyz")
    assert (reply.status_code, reply.json()["errCode"]) == (503, "service_unavailable")
    assert int(reply.headers["retry-after"]) >= 1
    assert (health.status_code, ready.status_code) == (200, 503)
    assert device.seen == []
