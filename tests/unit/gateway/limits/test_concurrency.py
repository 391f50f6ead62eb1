"""What callers hold at the same time: counted, bounded, given back."""

import contextlib
from functools import partial

import pytest

from libs.common.contracts.limits import Limits, UsageRequest
from libs.common.errors import TooManyRequests
from libs.common.identity import Principal, PrincipalKind
from libs.common.limits import tenants as module
from libs.common.limits.tenants import HeldSlots
from services.gateway.concurrency import ConcurrencyLimiter, ProcessCapacity, UseKind
from services.gateway.routes import RouteTable

LIMITS = Limits(requests=3, each_requests=2, polls=3, each_polls=2, websockets=3, each_websockets=2)
BOUNDS = ProcessCapacity(requests=100, polls=100, websockets=100, address_requests=2)


class Known:
    """Limits that are known already."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits = limits

    def get(self, _: str) -> Limits:
        return self._limits


def limiter(limits: Limits = LIMITS, bounds: ProcessCapacity = BOUNDS) -> ConcurrencyLimiter:
    return ConcurrencyLimiter(Known(limits), bounds)


def device(name: str, tenant: str = "t1") -> Principal:
    return Principal(kind=PrincipalKind.DEVICE, tenant=tenant, subject=name)


USES = ("requests", "polls", "websockets")


@pytest.mark.parametrize("use", USES)
def test_a_principal_holds_so_many_and_no_more(use: UseKind) -> None:
    """It is told which limit; when one is given back, the next is let in."""
    hand = limiter()
    take = partial(hand.acquire, use)
    held = [take(device("a")) for _ in range(2)]
    with pytest.raises(TooManyRequests, match=f"2 each{use.capitalize()}") as refused:
        take(device("a"))
    assert refused.value.retry_after > 0
    held.pop().release()
    take(device("a"))


def test_a_rejection_is_counted_by_limit_and_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for limits of principals and tenants. Anonymous callers have no tenant."""
    counted: list[tuple[str, str]] = []
    monkeypatch.setattr(module, "count_rejection", lambda *given: counted.append(given))
    hand = limiter()
    for name in ("a", "a", "a", "b", "b"):
        with contextlib.suppress(TooManyRequests):
            hand.acquire("requests", device(name))
    assert counted == [("eachRequests", "t1"), ("requests", "t1")]


@pytest.mark.parametrize("use", USES)
def test_principals_of_a_tenant_hold_so_many_together(use: UseKind) -> None:
    """Another tenant is not concerned."""
    hand = limiter()
    take = partial(hand.acquire, use)
    for name in ("a", "a", "b"):
        take(device(name))
    with pytest.raises(TooManyRequests, match=f"3 {use}"):
        take(device("c"))
    take(device("c", "t2"))


def test_rejected_requests_are_not_counted() -> None:
    """A principal rejected for its tenant may call again when the tenant has room."""
    hand = limiter()
    first: list[HeldSlots] = [hand.acquire("requests", device("a")) for _ in range(2)]
    hand.acquire("requests", device("b"))
    for _ in range(5):
        with pytest.raises(TooManyRequests):
            hand.acquire("requests", device("c"))
    for held in first:
        held.release()
    assert [hand.acquire("requests", device("c")) for _ in range(2)]


def test_no_tenant_takes_more_than_three_quarters_of_a_process() -> None:
    """Whatever its limits are."""
    hand = limiter(Limits(), ProcessCapacity(requests=8, polls=8, websockets=8, address_requests=2))
    for number in range(6):
        hand.acquire("polls", device(str(number)))
    with pytest.raises(TooManyRequests, match="6 polls"):
        hand.acquire("polls", device("more"))
    hand.acquire("polls", device("a", "t2"))


def test_anonymous_requests_are_counted_by_address_by_hook_and_together() -> None:
    """They get half of a service's requests. All callers of a hook count as one."""
    hand = limiter(bounds=ProcessCapacity(requests=10, polls=1, websockets=1, address_requests=2))
    table = RouteTable()

    def take(path: bytes, address: str) -> HeldSlots:
        route = table.find(path)
        assert route is not None
        return hand.acquire_anonymous(route, path, address)

    held = [take(b"/workflow/hooks/a", "192.0.2.1"), take(b"/workflow/hooks/b", "192.0.2.1")]
    with pytest.raises(TooManyRequests, match="address"):
        take(b"/workflow/hooks/c", "192.0.2.1")
    take(b"/workflow/hooks/a", "192.0.2.2")
    with pytest.raises(TooManyRequests, match="of a flow"):
        take(b"/workflow/hooks/a", "192.0.2.3")
    held.pop().release()
    for number in range(3):
        take(b"/workflow/hooks/%d" % number, f"192.0.2.1{number}")
    with pytest.raises(TooManyRequests, match="without a login"):
        take(b"/workflow/hooks/z", "192.0.2.30")
    take(b"/oauth/token", "192.0.2.30")


async def test_the_use_of_tenant_and_principal_is_reported() -> None:
    """It has the names of the limits. Finished requests do not count."""
    hand = limiter()
    held = [
        hand.acquire("requests", device("a")),
        hand.acquire("requests", device("b")),
        hand.acquire("polls", device("b")),
    ]
    used = await hand.measure_usage(UsageRequest("t1", "device", "a"))
    assert {name: number for name, number in used.items() if number} == {
        "requests": 2, "eachRequests": 1, "polls": 1
    }  # fmt: skip
    for entry in held:
        entry.release()
    assert set((await hand.measure_usage(UsageRequest("t1", "device", "a"))).values()) == {0}


def test_sockets_without_a_login_leave_room_for_others() -> None:
    """One address has an eighth of them, all together half; those with a login are apart."""
    hand = limiter(bounds=ProcessCapacity(requests=1, polls=1, websockets=16, address_requests=1))
    held = [hand.acquire_anonymous_websocket("a") for _ in range(2)]
    with pytest.raises(TooManyRequests, match="one address"):
        hand.acquire_anonymous_websocket("a")
    held += [hand.acquire_anonymous_websocket(f"b{number}") for number in range(6)]
    with pytest.raises(TooManyRequests, match="more than 8 MQTT"):
        hand.acquire_anonymous_websocket("c")
    hand.acquire("websockets", device("d"))
    held.pop().release()
    hand.acquire_anonymous_websocket("c")
