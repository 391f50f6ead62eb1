"""What the gateway knows of users: asked once for a version, and never older than it."""

import asyncio
from typing import Any

import pytest

from libs.common.contracts.access import Access, UserRef
from libs.common.errors import Unauthenticated
from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.access import AccessReader


class Auth:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.version = 1
        self.asked: list[UserRef] = []
        self.go = asyncio.Event()
        self.go.set()
        self.gone = False

    async def call(self, subject: str, request: UserRef, answer: Any) -> Access:
        """Stand for the rpc client."""
        assert (subject, answer) == ("rpc.auth.get_access", Access)
        self.asked.append(request)
        await self.go.wait()
        if self.gone:
            raise Unauthenticated("the user is gone")
        return Access(self.version, frozenset({f"v{self.version}"}), super_admin=False)

    async def has_been_asked(self, times: int) -> None:
        """Return once it has been asked so often."""
        while len(self.asked) < times:
            await asyncio.sleep(0)


def user(access: int, subject: str = "7", tenant: str = "t") -> Principal:
    return Principal(PrincipalKind.USER, tenant, subject, access=access)


@pytest.fixture
def auth() -> Auth:
    return Auth()


@pytest.fixture
def reader(auth: Auth) -> AccessReader:
    return AccessReader(auth)  # type: ignore[arg-type]


async def test_access_is_requested_once_for_each_version(auth: Auth, reader: AccessReader) -> None:
    """It is cached while the version stays, and requested again when it has grown."""
    first = [await reader.add_access(user(1)) for _ in range(3)]
    auth.version = 2
    second = await reader.add_access(user(2))
    assert [one.functions for one in first] == [frozenset({"v1"})] * 3
    assert (second.functions, second.access, len(auth.asked)) == (frozenset({"v2"}), 2, 2)


async def test_requests_at_the_same_time_ask_once(auth: Auth, reader: AccessReader) -> None:
    """Requests of a user that come while it is asked about wait for the one answer."""
    auth.go.clear()
    waiting = [asyncio.ensure_future(reader.add_access(user(1))) for _ in range(5)]
    other = asyncio.ensure_future(reader.add_access(user(1, "8")))
    await auth.has_been_asked(2)
    auth.go.set()
    assert len({(await one).functions for one in waiting}) == 1
    await other
    assert auth.asked == [UserRef("t", 7), UserRef("t", 8)]


async def test_an_answer_in_hand_is_not_for_later_versions(
    auth: Auth, reader: AccessReader
) -> None:
    """A request that saw a later version does not take the answer that an earlier one waits for."""
    auth.go.clear()
    early = asyncio.ensure_future(reader.add_access(user(1)))
    await auth.has_been_asked(1)
    late = asyncio.ensure_future(reader.add_access(user(2)))
    await auth.has_been_asked(2)
    auth.version = 2
    auth.go.set()
    assert (await late).access == 2
    await early


async def test_an_unknown_version_is_always_asked_for(auth: Auth, reader: AccessReader) -> None:
    """While Redis has no version, nothing that is known counts."""
    for _ in range(2):
        await reader.add_access(user(0))
    assert len(auth.asked) == 2


async def test_tenants_are_apart(auth: Auth, reader: AccessReader) -> None:
    """Users of two tenants are two, whatever their ids."""
    await reader.add_access(user(1))
    await reader.add_access(user(1, tenant="other"))
    assert auth.asked == [UserRef("t", 7), UserRef("other", 7)]


async def test_a_rejection_is_not_cached(auth: Auth, reader: AccessReader) -> None:
    """A deleted user is rejected and requested again the next time."""
    auth.gone = True
    for _ in range(2):
        with pytest.raises(Unauthenticated):
            await reader.add_access(user(1))
    assert len(auth.asked) == 2


async def test_others_are_left_alone(auth: Auth, reader: AccessReader) -> None:
    """Applications and devices have nothing to complete."""
    application = Principal(PrincipalKind.APPLICATION, "t", "7")
    assert await reader.add_access(application) is application
    assert auth.asked == []
