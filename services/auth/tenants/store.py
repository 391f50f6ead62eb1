"""Tenants in MongoDB.

`tenants`: `{_id: name, access, accessChangedAt, createdAt, limits?}`; `access` is the version of
its users, roles, menus and grants (`versions.py`), `limits` has the limits of its own by name.
"""

from datetime import UTC, datetime

from libs.common.clock import to_ms
from libs.common.contracts.tenants import Tenant
from libs.common.errors import Conflict
from libs.common.store.mongo import Database, DuplicateKey, Session
from services.auth.changes import Change
from services.auth.tenants.seed import SUPER_ADMIN
from services.auth.tenants.service import Seeds


class TenantStore:
    """The collection `tenants`, and what is put into others when one is made."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tenants = database["tenants"]

    async def exists(self, tenant: str) -> bool:
        """Tell whether there is such a tenant."""
        return await self._tenants.find_one({"_id": tenant}, {"_id": 1}) is not None

    async def insert(self, seeds: Seeds, change: Change) -> None:
        """Write the tenant and its seeds; raise `Conflict` when there is such a tenant."""
        now = datetime.now(UTC)
        tenant = {"_id": seeds.tenant, "access": 0, "accessChangedAt": now, "createdAt": now}
        try:
            await self._tenants.insert_one(tenant, session=change.session)
        except DuplicateKey as error:
            raise Conflict(f"there is a tenant {seeds.tenant} already", field="name") from error
        await self._insert_role(seeds, change, now)
        await self._insert_menus(seeds, change)
        if seeds.client is not None:
            await self._insert_client(seeds.tenant, seeds.client, change, now)

    async def _insert_role(self, seeds: Seeds, change: Change, now: datetime) -> None:
        await self._database["roles"].insert_one(
            {
                "_id": seeds.super_admin,
                "tenant": seeds.tenant,
                "name": SUPER_ADMIN,
                "description": "",
                "menus": [],
                "createdAt": now,
                "updatedAt": now,
            },
            session=change.session,
        )

    async def _insert_menus(self, seeds: Seeds, change: Change) -> None:
        await self._database["menus"].insert_many(
            [
                {
                    "_id": menu.id,
                    "tenant": seeds.tenant,
                    "code": menu.code,
                    "name": menu.code,
                    "type": menu.type,
                    "parentId": menu.parent,
                }
                for menu in seeds.menus
            ],
            session=change.session,
        )

    async def _insert_client(
        self, tenant: str, client: tuple[str, str], change: Change, now: datetime
    ) -> None:
        client_id, hashed = client
        await self._database["console_clients"].insert_one(
            {"_id": client_id, "secretHash": hashed, "tenant": tenant, "createdAt": now},
            session=change.session,
        )

    async def own_limits(
        self, tenant: str, session: Session | None = None
    ) -> dict[str, int] | None:
        """The limits that are the tenant's own, None when there is no such tenant."""
        found = await self._tenants.find_one({"_id": tenant}, {"limits": 1}, session=session)
        return None if found is None else found.get("limits", {})

    async def set_limits(self, tenant: str, limits: dict[str, int], session: Session) -> None:
        """Set the limits that are the tenant's own."""
        await self._tenants.update_one(
            {"_id": tenant}, {"$set": {"limits": limits}}, session=session
        )

    async def all(self) -> list[Tenant]:
        """Every tenant by name, with how many users it has."""
        counted = await self._database["users"].aggregate(
            [{"$group": {"_id": "$tenant", "users": {"$sum": 1}}}]
        )
        users = {row["_id"]: row["users"] async for row in counted}
        return [
            Tenant(
                name=document["_id"],
                created_at=to_ms(document["createdAt"]),
                users=users.get(document["_id"], 0),
            )
            async for document in self._tenants.find().sort("_id", 1)
        ]
