"""Which users have a role."""

import asyncio
from typing import Any

from tests.integration.auth.rights import (
    STRANGER,
    access_of,
    audited,
    create_role,
    store_user,
)

SUPER_ADMIN = "/user/roles/1"


async def members(auth: Any, role: str, **body: Any) -> list[str]:
    found = await auth.done("POST", f"{role}/members", body)
    return [member["user_id"] for member in found]


async def others(auth: Any, role: str, **body: Any) -> list[str]:
    found = await auth.done("POST", f"{role}/undistributed-users", body)
    return [user["user_id"] for user in found]


async def list_role_ids(auth: Any, user_id: str) -> list[int]:
    user = await auth.mongo.database["users"].find_one({"_id": int(user_id)})
    return list(user["roles"])


async def test_users_are_added_and_listed(auth):
    """With email and nickname; those who are left are the candidates."""
    role_id = await create_role(auth)
    role = f"/user/roles/{role_id}"
    first, second = await store_user(auth, 7), await store_user(auth, 8)

    await auth.done("POST", f"{role}/associate-user", {"user_ids": [first]})

    assert await auth.done("POST", f"{role}/members") == [
        {
            "role_id": role_id,
            "user_id": first,
            "user_nickname": "user 7",
            "user_email": "7@example.com",
        }
    ]
    assert await auth.done("POST", f"{role}/undistributed-users", {}) == [
        {"user_id": second, "nickname": "user 8", "email": "8@example.com"}
    ]
    assert await auth.done("GET", f"{role}/members") == await auth.done("POST", f"{role}/members")
    assert await auth.done("GET", f"{role}/members?keyword=nobody") == []


async def test_members_are_searched_sorted_and_paged(auth):
    """By part of email or nickname, in any case; the newest user first."""
    role_id = int(await create_role(auth))
    role = f"/user/roles/{role_id}"
    await store_user(auth, 7, role_id, nickname="Zoe")
    await store_user(auth, 8, role_id, email="zoe@Example.com", nickname="b")
    await store_user(auth, 9, role_id, nickname="c")

    assert await members(auth, role) == ["9", "8", "7"]
    assert await members(auth, role, keyword="ZO") == ["8", "7"]
    sorts = [{"property": "user_nickname", "direction": "DESC"}]
    assert await members(auth, role, sorts=sorts) == ["9", "8", "7"]
    page = await auth.done("POST", f"{role}/members", {"page_size": 2, "page_number": 2})
    assert ([each["user_id"] for each in page["content"]], page["total"]) == (["7"], 3)


async def test_adding_members_skips_unknown_and_existing_ones(auth):
    """No user has a role twice, and duplicate ids count once."""
    role_id = await create_role(auth)
    role = f"/user/roles/{role_id}"
    user_id = await store_user(auth, 7)

    for _ in range(2):
        await auth.done("POST", f"{role}/associate-user", {"user_ids": [user_id, 7, "99", user_id]})

    assert await list_role_ids(auth, user_id) == [int(role_id)]
    assert await audited(auth, "role", action="members_added") == ["members_added"]


async def test_users_of_another_tenant_are_unknown(auth):
    """They get no role, lose none and are not listed."""
    await auth.tenant("elsewhere")
    role_id = await create_role(auth)
    role = f"/user/roles/{role_id}"
    await store_user(auth, 7, int(role_id), tenant="elsewhere")
    await store_user(auth, 8, tenant="elsewhere")

    await auth.done("POST", f"{role}/associate-user", {"user_ids": ["8"]})
    await auth.done("POST", f"{role}/disassociate-user", {"user_ids": ["7"]})

    assert (await list_role_ids(auth, "7"), await list_role_ids(auth, "8")) == ([int(role_id)], [])
    assert (await members(auth, role), await others(auth, role)) == ([], [])
    theirs = await create_role(auth, caller=STRANGER)
    await auth.refused(
        404, "POST", f"/user/roles/{theirs}/associate-user", {"user_ids": ["8"]}, field="role_id"
    )


async def test_functions_change_with_the_members_at_once(auth):
    """Adding and removing a member changes its functions immediately."""
    role = f"/user/roles/{await create_role(auth)}"
    user_id = await store_user(auth, 7)
    await auth.done("POST", f"{role}/associate-menu", {"menu_ids": [2001]})

    await auth.done("POST", f"{role}/associate-user", {"user_ids": [user_id]})
    assert (await access_of(auth, user_id)).functions == {"device.view"}
    await auth.done("POST", f"{role}/disassociate-user", {"user_ids": [user_id]})
    assert (await access_of(auth, user_id)).functions == frozenset()


BAD_USER_IDS = [
    {},
    {"user_ids": None},
    {"user_ids": "7"},
    {"user_ids": ["a"]},
    {"user_ids": [0]},
    [],
    None,
]


async def test_bad_user_ids_are_refused(auth):
    """400, before anything is done."""
    for body in BAD_USER_IDS:
        for operation in ("associate-user", "disassociate-user"):
            await auth.refused(400, "POST", f"{SUPER_ADMIN}/{operation}", body)


async def test_an_empty_list_does_nothing(auth):
    """It is no mistake."""
    for operation in ("associate-user", "disassociate-user"):
        await auth.done("POST", f"{SUPER_ADMIN}/{operation}", {"user_ids": []})


async def test_the_last_super_admin_stays(auth):
    """Somebody has to be able to sign in and administer; a disabled one is not."""
    first, second = await store_user(auth, 7, 1), await store_user(auth, 8, 1)
    await store_user(auth, 9, 1, enabled=False)
    path = f"{SUPER_ADMIN}/disassociate-user"

    await auth.refused(409, "POST", path, {"user_ids": [first, second]}, field="user_ids")
    await auth.done("POST", path, {"user_ids": [first]})
    await auth.refused(409, "POST", path, {"user_ids": [second]}, field="user_ids")

    assert await list_role_ids(auth, second) == [1]
    assert (await access_of(auth, second)).super_admin


async def test_two_super_admins_cannot_remove_each_other(auth):
    """One of two simultaneous removals fails."""
    for _ in range(4):
        await auth.mongo.database["users"].delete_many({})
        ids = [await store_user(auth, user_id, 1) for user_id in (7, 8)]

        answers = await asyncio.gather(
            *(
                auth.ask("POST", f"{SUPER_ADMIN}/disassociate-user", {"user_ids": [user_id]})
                for user_id in ids
            )
        )

        assert sorted(answer.status_code for answer in answers) == [200, 409]
        assert len(await members(auth, SUPER_ADMIN)) == 1
