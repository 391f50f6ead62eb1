"""How guessing is slowed down, with buckets in memory."""

import asyncio

import pytest

from libs.common.errors import TooManyRequests, Unavailable
from libs.common.scheduling import LaneFull
from services.auth import passwords as throttling
from services.auth.passwords import (
    ACCOUNT_FAILURE_BURST,
    ADDRESS_FAILURE_BURST,
    MAX_WAITING_LOGINS_PER_TENANT,
    LoginThrottle,
)


class Buckets:
    """Buckets that are not refilled."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}

    async def take_permits(self, key, *, rate, burst, number=1):
        left = self.left.get(key, burst)
        granted = min(number, left)
        self.left[key] = min(burst, left - granted)
        return granted, (1 - self.left[key]) / rate

    async def fill(self, key):
        self.left.pop(key, None)


@pytest.fixture
def throttle() -> LoginThrottle:
    return LoginThrottle(Buckets(), threads=1)


async def attempt(throttle: LoginThrottle, email: str, address: str, *, right: bool) -> None:
    async with throttle.attempt("default", email, address) as made:
        await asyncio.sleep(0)
        made.is_correct = right


async def fail(throttle: LoginThrottle, email: str, address: str, times: int = 1) -> None:
    for _ in range(times):
        await attempt(throttle, email, address, right=False)


async def test_an_account_has_ten_attempts_from_anywhere(throttle):
    """However its address is written; the next one may come after 90 s."""
    for number in range(ACCOUNT_FAILURE_BURST):
        await fail(throttle, " A@b.de"[number % 2 :], f"192.0.2.{number}")

    with pytest.raises(TooManyRequests) as caught:
        await fail(throttle, "a@B.de", "192.0.2.99")

    assert caught.value.retry_after == pytest.approx(90)
    async with throttle.attempt("other", "a@b.de", "192.0.2.99"):
        """The same address in another tenant is another account."""


async def test_a_success_forgets_the_failures_of_the_account(throttle):
    """Ten more are there."""
    await fail(throttle, "a@b.de", "192.0.2.1", ACCOUNT_FAILURE_BURST - 1)

    await attempt(throttle, "A@b.de", "192.0.2.1", right=True)

    await fail(throttle, "a@b.de", "192.0.2.1", ACCOUNT_FAILURE_BURST)


async def test_many_right_ones_at_once_are_not_counted_against_the_account(throttle):
    """They take turns, and each fills the bucket for the next."""
    await asyncio.gather(*(attempt(throttle, "a@b.de", "192.0.2.1", right=True) for _ in range(64)))


async def test_ten_of_many_simultaneous_wrong_passwords_are_checked(throttle):
    """Simultaneous attempts do not bypass the limit."""
    outcomes = await asyncio.gather(
        *(attempt(throttle, "a@b.de", "192.0.2.1", right=False) for _ in range(40)),
        return_exceptions=True,
    )

    refused = [outcome for outcome in outcomes if isinstance(outcome, TooManyRequests)]
    assert len(refused) == 40 - ACCOUNT_FAILURE_BURST


async def test_those_of_a_tenant_that_wait_are_bounded(throttle):
    """Further attempts are rejected until there is room, but not those of others."""
    tries = [
        attempt(throttle, f"{one % 9}@b.de", "", right=True)
        for one in range(MAX_WAITING_LOGINS_PER_TENANT + 9)
    ]
    waiting = asyncio.gather(*tries, return_exceptions=True)
    await asyncio.sleep(0)
    async with throttle.attempt("other", "a@b.de", ""):
        """Another tenant has its own lane."""

    outcomes = await waiting

    refused = [outcome for outcome in outcomes if isinstance(outcome, LaneFull)]
    assert 5 <= len(refused) < 9
    await attempt(throttle, "a@b.de", "", right=True)


async def test_tenants_and_accounts_take_turns(throttle):
    """A log-in waits neither for all attempts of another tenant nor for those of an account."""
    ended: list[str] = []

    async def log_in(tenant: str, email: str, *, exists: bool = True) -> None:
        async with throttle.attempt(tenant, email, "", tenant_exists=exists) as made:
            await asyncio.sleep(0)
            made.is_correct = True
        ended.append(tenant if exists else "")

    crowd = [log_in("loud", "a@b.de") for _ in range(40)]
    crowd += [log_in("loud", f"{number}@b.de") for number in range(40)]
    crowd += [log_in(f"invented {number}", "a@b.de", exists=False) for number in range(40)]
    both = [log_in("quiet", "a@b.de"), log_in("loud", "late@b.de")]
    await asyncio.gather(*crowd, *both)

    assert ended.index("quiet") < 12
    assert ended.count("") == 40
    assert ended.index("") < 12


async def test_an_attempt_that_takes_too_long_is_given_up(throttle, monkeypatch):
    """While others of the account go on, or nothing does."""
    monkeypatch.setattr(throttling, "LOGIN_DEADLINE_SECONDS", 0.01)
    with pytest.raises(Unavailable):
        async with throttle.attempt("default", "a@b.de", ""):
            await asyncio.Event().wait()
    monkeypatch.undo()
    await attempt(throttle, "a@b.de", "", right=True)


async def test_an_attempt_that_was_not_made_is_not_counted(throttle):
    """A storm at the door does not lock those out who wait before it."""
    for _ in range(2 * ADDRESS_FAILURE_BURST):
        with pytest.raises(Unavailable):
            async with throttle.attempt("default", "a@b.de", "192.0.2.1"):
                raise Unavailable("too many logins at the moment")

    await fail(throttle, "a@b.de", "192.0.2.1", ACCOUNT_FAILURE_BURST)


async def test_an_address_has_a_hundred_failures_and_any_number_of_successes(throttle):
    """An office signs in in the morning; one that guesses is slowed down."""
    for number in range(2 * ADDRESS_FAILURE_BURST):
        await attempt(throttle, f"{number}@b.de", "192.0.2.1", right=True)
    for number in range(ADDRESS_FAILURE_BURST):
        await fail(throttle, f"{number}@b.de", "192.0.2.1")

    with pytest.raises(TooManyRequests) as caught:
        await fail(throttle, "x@b.de", "192.0.2.1")

    assert caught.value.retry_after == pytest.approx(9)


async def test_an_address_that_is_refused_uses_up_no_account(throttle):
    """Or it could keep others out for ever."""
    for number in range(ADDRESS_FAILURE_BURST):
        await fail(throttle, f"{number}@b.de", "192.0.2.1")
    for _ in range(50):
        with pytest.raises(TooManyRequests):
            await fail(throttle, "victim@b.de", "192.0.2.1")

    await fail(throttle, "victim@b.de", "192.0.2.2", ACCOUNT_FAILURE_BURST)


async def test_the_addresses_of_an_ipv6_network_are_one(throttle):
    """A client has all of a /64."""
    for number in range(ADDRESS_FAILURE_BURST):
        await fail(throttle, f"{number}@b.de", f"2001:db8::{number:x}")

    with pytest.raises(TooManyRequests):
        await fail(throttle, "x@b.de", "2001:db8::ffff")


async def test_without_an_address_only_accounts_are_counted(throttle):
    """Requests that bypass the gateway have no address."""
    for number in range(2 * ADDRESS_FAILURE_BURST):
        await fail(throttle, f"{number}@b.de", "")
