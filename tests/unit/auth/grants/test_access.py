"""What the gateway and the services are told of a user, with what is stored given."""

from collections.abc import Iterable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from libs.common.contracts.access import Access, GrantedResources, ResourceType, UserRef
from libs.common.errors import Conflict, Unauthenticated
from services.auth.accounts.roles import Role
from services.auth.accounts.tenants import TenantSettings
from services.auth.grants.access import MAX_USER_GRANTS, AccessService

USER = UserRef("acme", 7)
MESSAGE = 1024 * 1024
"""Bytes of the largest message of the bus."""


class Platform:
    """Stores in memory, a transaction that reads them, and the versions that were restored."""

    def __init__(
        self, *, roles: dict[str, list[int]] | None = None, version: int = 0, **ids: Iterable[Any]
    ) -> None:
        """`roles` are names with ids of menus, None without the user; `ids` are granted."""
        self._roles = roles
        self._version = version
        self._ids = {kind: frozenset(ids.get(kind.value.lower(), ())) for kind in ResourceType}
        self.restored: list[tuple[str, int]] = []
        stores: Any = SimpleNamespace(users=self, roles=self, tenants=self, menus=self, grants=self)
        self.service = AccessService(self, stores, self)

    async def run_in_snapshot(self, read):
        return await read(None)

    async def raise_to(self, tenant: str, version: int) -> None:
        self.restored.append((tenant, version))

    async def list_role_ids(self, tenant, user_id, session, *, only_if_enabled) -> list[int] | None:
        assert only_if_enabled
        return None if self._roles is None else list(range(len(self._roles)))

    async def find(self, tenant, ids, session) -> dict[int, Role]:
        now = datetime.now(UTC)
        return {
            number: Role(id=number, name=name, description="", menus=tuple(menus), created_at=now)
            for number, (name, menus) in enumerate(self._roles.items())
        }

    async def get_settings(self, tenant, session) -> TenantSettings:
        return TenantSettings(viewers_may_command=True, notice=False)

    async def get_access_version(self, tenant, session) -> int:
        return self._version

    async def list_function_codes(self, tenant, menus, session) -> frozenset[str]:
        return frozenset({1: "device.view", 2: "own.code"}[menu] for menu in menus)

    async def list_ids_by_type(self, tenant, roles, session) -> dict[ResourceType, frozenset[Any]]:
        return self._ids


async def test_the_functions_of_a_user_are_returned() -> None:
    """Those of all roles are returned after the version is stored."""
    platform = Platform(roles={"guards": [1], "cooks": [2]}, version=9)

    found = await platform.service.get_access(USER)

    functions = frozenset({"device.view"})
    assert found == Access(9, functions, super_admin=False, viewers_may_command=True)
    assert platform.restored == [("acme", 9)]


async def test_a_super_admin_is_known_by_the_role() -> None:
    """Other roles do not matter."""
    found = await Platform(roles={"guards": [], "super_admin": []}).service.get_access(USER)
    assert found.super_admin


async def test_an_unknown_user_gets_no_access() -> None:
    """No version is restored, either."""
    platform = Platform()

    with pytest.raises(Unauthenticated):
        await platform.service.get_access(USER)
    with pytest.raises(Unauthenticated):
        await platform.service.get_grants(USER)

    assert platform.restored == []


async def test_the_largest_number_of_grants_fits() -> None:
    """Ids have their maximum length. One more grant is rejected with an instruction."""
    longest = range(2**53 - MAX_USER_GRANTS, 2**53)

    found = await Platform(roles={}, version=3, entity=longest).service.get_grants(USER)
    assert found == GrantedResources(version=3, entities=frozenset(longest))
    assert len(msgspec.json.encode(found)) < MESSAGE

    with pytest.raises(Conflict, match="integrations"):
        await Platform(roles={}, entity=longest, device=[1]).service.get_grants(USER)
