"""What the gateway and the services are told of a user, with what is stored given."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from libs.common.contracts.access import Access, GrantedResources, ResourceType, UserRef
from libs.common.errors import Conflict, Unauthenticated
from services.auth.grants.access import MOST_GRANTS, AccessService, HeldAccess, HeldGrants

USER = UserRef("acme", 7)
MESSAGE = 1024 * 1024
"""Bytes of the largest message of the bus."""


def grants(version: int, **ids: Iterable[Any]) -> HeldGrants:
    return HeldGrants(
        version, {kind: frozenset(ids.get(kind.value.lower(), ())) for kind in ResourceType}
    )


class Snapshots:
    def __init__(self, access: HeldAccess | None = None, granted: HeldGrants | None = None) -> None:
        self._access = access
        self._grants = granted

    async def access(self, tenant: str, user_id: int) -> HeldAccess | None:
        return self._access

    async def grants(self, tenant: str, user_id: int) -> HeldGrants | None:
        return self._grants


class Reached:
    def __init__(self) -> None:
        self.versions: list[tuple[str, int]] = []

    async def __call__(self, tenant: str, version: int) -> None:
        self.versions.append((tenant, version))


async def test_codes_that_are_functions_are_told() -> None:
    """And the version stands where requests look it up before it is told."""
    reached = Reached()
    held = HeldAccess(9, super_admin=False, codes=frozenset({"device.view", "own.code"}))

    found = await AccessService(Snapshots(held), reached).access(USER)

    assert found == Access(9, frozenset({"device.view"}), super_admin=False)
    assert reached.versions == [("acme", 9)]


async def test_of_nobody_nothing_is_told() -> None:
    """Nor is a version restored."""
    reached = Reached()
    service = AccessService(Snapshots(), reached)

    with pytest.raises(Unauthenticated):
        await service.access(USER)
    with pytest.raises(Unauthenticated):
        await service.grants(USER)

    assert reached.versions == []


async def test_as_many_grants_as_fit_are_told() -> None:
    """With the longest ids; one more is refused, and says what to do."""
    longest = range(2**53 - MOST_GRANTS, 2**53)

    found = await AccessService(Snapshots(granted=grants(3, entity=longest)), Reached()).grants(
        USER
    )
    assert found == GrantedResources(version=3, entities=frozenset(longest))
    assert len(msgspec.json.encode(found)) < MESSAGE

    more = Snapshots(granted=grants(3, entity=longest, device=[1]))
    with pytest.raises(Conflict, match="integrations"):
        await AccessService(more, Reached()).grants(USER)
