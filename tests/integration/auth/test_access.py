"""What `auth` tells the gateway and the services of a user."""

from typing import Any

import pytest

from libs.common.contracts.access import Access, GrantedResources, UserRef
from libs.common.errors import Unauthenticated
from libs.common.identity.access import access_version_key
from tests.integration.auth import rights


async def store_user(auth: Any, user_id: int, roles: list[int], **more: Any) -> int:
    document = {
        "_id": user_id,
        "tenant": "default",
        "emailKey": f"{user_id}@example.com",
        "enabled": True,
        "roles": roles,
    }
    await auth.mongo.database["users"].insert_one({**document, **more})
    return user_id


async def store_role(auth: Any, role_id: int, menus: list[int], tenant: str = "default") -> int:
    return await rights.store_role(auth, role_id, f"role {role_id}", menus, tenant)


async def store_grants(auth: Any, role: int, *grants: tuple[str, Any]) -> None:
    await auth.mongo.database["grants"].insert_many(
        {"tenant": "default", "role": role, "type": kind, "id": resource}
        for kind, resource in grants
    )


async def access(auth: Any, user_id: int, tenant: str = "default") -> Access:
    return await auth.call("get_access", UserRef(tenant, user_id), Access)


async def grants(auth: Any, user_id: int, tenant: str = "default") -> GrantedResources:
    return await auth.call("get_grants", UserRef(tenant, user_id), GrantedResources)


async def test_functions_are_the_union_over_the_roles(auth):
    """Pages give none, nor do codes that no operation knows."""
    await auth.mongo.database["menus"].insert_one(
        {"_id": 9900, "tenant": "default", "code": "own.view", "type": "FUNCTION"}
    )
    roles = [await store_role(auth, 2, [1000, 1001, 9900]), await store_role(auth, 3, [2001])]

    found = await access(auth, await store_user(auth, 7, roles))

    assert found == Access(1, frozenset({"dashboard.view", "device.view"}), super_admin=False)


async def test_a_super_admin_is_known_by_its_role(auth):
    """The role needs no menus."""
    found = await access(auth, await store_user(auth, 7, [1]))

    assert found == Access(1, frozenset(), super_admin=True)


async def test_a_user_without_roles_may_nothing(auth):
    """That is an answer, not a refusal."""
    await store_user(auth, 7, [])

    assert await access(auth, 7) == Access(1, frozenset(), super_admin=False)
    assert await grants(auth, 7) == GrantedResources(version=1)


async def test_deleted_disabled_and_foreign_users_have_no_access(auth):
    """All three requests get 401."""
    await store_user(auth, 7, [1], enabled=False)
    await store_user(auth, 8, [1])
    for ask in (access, grants):
        for user_id, tenant in ((6, "default"), (7, "default"), (8, "elsewhere")):
            with pytest.raises(Unauthenticated):
                await ask(auth, user_id, tenant)


async def test_a_role_of_another_tenant_gives_nothing(auth):
    """Even if a user had its id."""
    await store_role(auth, 2, [1001], tenant="elsewhere")

    assert (await access(auth, await store_user(auth, 7, [2]))).functions == frozenset()


async def test_asking_restores_a_version_that_redis_lost(auth):
    """An empty Redis does not make each request ask again."""
    await store_user(auth, 7, [])
    await auth.redis.flushdb()

    await access(auth, 7)

    assert await auth.redis.get(access_version_key("default")) == b"1"


async def test_grants_are_the_union_over_the_roles_by_type(auth):
    """A grant of two roles is listed once."""
    await store_grants(auth, await store_role(auth, 2, []), ("DEVICE", 5), ("INTEGRATION", "ping"))
    await store_grants(
        auth,
        await store_role(auth, 3, []),
        ("DEVICE", 5),
        ("DEVICE", 6),
        ("ENTITY", 2**53 - 1),
        ("DASHBOARD", 8),
        ("WORKFLOW", 9),
    )
    await store_grants(auth, await store_role(auth, 4, []), ("DEVICE", 7))

    found = await grants(auth, await store_user(auth, 7, [2, 3]))

    assert found == GrantedResources(
        version=1,
        integrations=frozenset({"ping"}),
        devices=frozenset({5, 6}),
        entities=frozenset({2**53 - 1}),
        dashboards=frozenset({8}),
        workflows=frozenset({9}),
    )
