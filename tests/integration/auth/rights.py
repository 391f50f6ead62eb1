"""Users, roles and grants as tests of permissions make them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from libs.common.contracts.access import Access, GrantedResources, UserRef
from libs.common.identity import Principal, PrincipalKind

STRANGER = Principal(
    kind=PrincipalKind.USER,
    tenant="elsewhere",
    subject="43",
    name="other@example.com",
    super_admin=True,
)
"""The super-admin of another tenant."""
SUPER_ADMIN_ROLE = 1


async def store_user(
    auth: Any, user_id: int, *roles: int, tenant: str = "default", **more: Any
) -> str:
    """A user who is there already; answers its id as the API writes it."""
    email = more.pop("email", f"{user_id}@example.com")
    now = datetime.now(UTC)
    document = {
        "_id": user_id,
        "tenant": tenant,
        "passwordHash": "",
        "generation": 0,
        "createdAt": now,
        "updatedAt": now,
        "email": email,
        "emailKey": email.lower(),
        "nickname": f"user {user_id}",
        "enabled": True,
        "roles": list(roles),
    }
    await auth.mongo.database["users"].insert_one({**document, **more})
    return str(user_id)


async def store_role(
    auth: Any, role_id: int, name: str, menus: Sequence[int] = (), tenant: str = "default"
) -> int:
    """A role that is there already."""
    now = datetime.now(UTC)
    document = {"_id": role_id, "tenant": tenant, "name": name, "description": ""}
    times = {"createdAt": now, "updatedAt": now}
    await auth.mongo.database["roles"].insert_one({**document, "menus": list(menus), **times})
    return role_id


async def create_role(auth: Any, name: str = "operators", **more: Any) -> str:
    made = await auth.done("POST", "/user/roles", {"name": name}, **more)
    return str(made["role_id"])


async def access_of(auth: Any, user_id: str, tenant: str = "default") -> Access:
    found: Access = await auth.call("get_access", UserRef(tenant, int(user_id)), Access)
    return found


async def grants_of(auth: Any, user_id: str, tenant: str = "default") -> GrantedResources:
    wanted = UserRef(tenant, int(user_id))
    found: GrantedResources = await auth.call("get_grants", wanted, GrantedResources)
    return found


async def audited(auth: Any, kind: str, **query: Any) -> list[str]:
    """The actions on objects of a type, in order."""
    found = auth.mongo.database["audit"].find({"object.type": kind, **query}).sort("at", 1)
    return [entry["action"] async for entry in found]
