"""Rate limits, per principal and per address, across replicas."""

import asyncio
import secrets
from typing import Any

import pytest

from libs.common.errors import TooManyRequests
from libs.common.limits import TokenBuckets, address_key
from services.auth.passwords import ADDRESS_FAILURE_BURST, LoginThrottle
from services.gateway.rates import RateLimiter

from .conftest import DEVICES, Gateway, Recorder, Start


def somebody() -> dict[str, str]:
    """An address that no other test uses, for a gateway that believes it."""
    return {"X-Forwarded-For": f"10.{'.'.join(str(secrets.randbelow(256)) for _ in range(3))}"}


async def statuses(gateway: Gateway, path: str, headers: dict[str, str], count: int) -> list[int]:
    """The statuses of several requests at once."""
    replies = await asyncio.gather(*(gateway.http.get(path, headers=headers) for _ in range(count)))
    return [reply.status_code for reply in replies]


async def test_principal_above_its_burst_is_429(start: Start, device: Recorder) -> None:
    """Above the burst a principal gets 429 with Retry-After; another one is served."""
    async with start(principal_rate=0.5, principal_burst=5) as gateway:
        headers = await gateway.bearer()
        assert sorted(await statuses(gateway, f"{DEVICES}/5", headers, 8)) == [200] * 5 + [429] * 3
        refused = await gateway.http.get(f"{DEVICES}/5", headers=headers)
        other = await gateway.http.get(f"{DEVICES}/5", headers=await gateway.bearer())
    assert refused.json()["errCode"] == "too_many_requests"
    assert refused.headers["retry-after"] in {"1", "2"}
    assert (other.status_code, len(device.seen)) == (200, 6)


async def test_replicas_share_a_limit(start: Start) -> None:
    """Two gateways let no more pass together than one alone."""
    limits = {"principal_rate": 0.01, "principal_burst": 10}
    async with start(**limits) as one, start(**limits) as two:
        headers = await one.bearer()
        found = await asyncio.gather(
            statuses(one, f"{DEVICES}/5", headers, 10), statuses(two, f"{DEVICES}/5", headers, 10)
        )
    assert [*found[0], *found[1]].count(200) == 10


async def test_address_above_its_burst_is_429(start: Start) -> None:
    """Above the burst an address gets 429 whoever it is; another address is served."""
    limits = {"address_rate": 0.01, "address_burst": 3, "trusted_proxies": "127.0.0.1"}
    async with start(**limits) as gateway:
        here, there = somebody(), somebody()
        found = [
            (await gateway.http.get(f"{DEVICES}/5", headers=here | await gateway.bearer()))
            for _ in range(4)
        ]
        other = await gateway.http.get(f"{DEVICES}/5", headers=there | await gateway.bearer())
        page = await gateway.http.get("/openapi.json", headers=here)
    assert [reply.status_code for reply in found] == [200, 200, 200, 429]
    assert (other.status_code, page.status_code) == (200, 429)


async def test_token_endpoint_has_a_limit_of_its_own(start: Start) -> None:
    """Trying credentials is limited more strictly than other requests."""
    limits = {"token_rate": 0.01, "token_burst": 2, "trusted_proxies": "127.0.0.1"}
    async with start(**limits) as gateway:
        here = somebody()
        found = [(await gateway.http.post("/oauth/token", headers=here)) for _ in range(3)]
        other = await gateway.http.get(f"{DEVICES}/5", headers=here | await gateway.bearer())
    assert [reply.status_code for reply in found] == [200, 200, 429]
    assert other.status_code == 200


async def test_zero_is_no_limit(start: Start) -> None:
    """A rate of 0 lets everything pass."""
    async with start(principal_rate=0, principal_burst=1) as gateway:
        headers = await gateway.bearer()
        assert set(await statuses(gateway, f"{DEVICES}/5", headers, 20)) == {200}


async def test_permits_come_back_with_time(redis) -> None:
    """A key that was refused is served again after the time it was told."""
    limiter = RateLimiter(redis, secrets.token_hex(4), rate=50, burst=1)
    await limiter.take_permit("a")
    try:
        while True:
            await limiter.take_permit("a")
    except TooManyRequests as error:
        await asyncio.sleep(error.retry_after + 0.03)
    await limiter.take_permit("a")


async def test_leases_spare_round_trips(redis, monkeypatch) -> None:
    """A burst of 200 requests takes leases of ten each, also simultaneously."""
    take, taken = TokenBuckets.take_permits, []

    async def counted(buckets: TokenBuckets, *given: Any, **more: Any) -> Any:
        taken.append(more["number"])
        return await take(buckets, *given, **more)

    monkeypatch.setattr(TokenBuckets, "take_permits", counted)
    limiter = RateLimiter(redis, secrets.token_hex(4), rate=1, burst=200)
    await asyncio.gather(*(limiter.take_permit("a") for _ in range(100)))
    assert taken == [10] * 10


async def test_the_failures_of_an_address_are_counted_apart(redis) -> None:
    """`auth` counts failed logins by address too, and the door's rate gives none back."""
    address = f"2001:db8:{secrets.token_hex(2)}:{secrets.token_hex(2)}::1"
    door = RateLimiter(redis, "sign-in", rate=1_000_000, burst=ADDRESS_FAILURE_BURST)
    throttle = LoginThrottle(TokenBuckets(redis, "auth"), threads=1)

    async def fail() -> None:
        async with throttle.attempt("default", secrets.token_hex(8), address):
            await door.take_permit(address_key(address))

    for _ in range(ADDRESS_FAILURE_BURST):
        await fail()
    with pytest.raises(TooManyRequests, match="failed logins"):
        await fail()
