"""Tenants in MongoDB, and the version of what their users may do.

`tenants`: `{_id: name, access, accessChangedAt, createdAt, limits?, additions?, purge?,
viewersMayCommand, commandNotice?}`; `access` is the version of its users, roles, menus and grants,
`limits` has the limits of its own by name, `additions` counts what was added under limits, `purge`
has the last purge of its events. `viewersMayCommand` is the setting of decision 0048,
`commandNotice` says that an upgrade turned it on.
"""

import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec
from pymongo import ReturnDocument

from libs.common.clock import to_ms
from libs.common.contracts.auth import Tenant
from libs.common.contracts.limits import Limits
from libs.common.errors import Conflict, NotFound
from libs.common.identity.access import AccessVersions
from libs.common.limits.quota import limit_reached
from libs.common.limits.tenants import count_limited
from libs.common.scheduling.turns import repeat
from libs.common.store.mongo import Database, Document, DuplicateKey, Session

log = logging.getLogger(__name__)

DEFAULT_TENANT = "default"
"""The tenant that is there from the first start on."""
TENANT = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""A tenant is one token of a bus subject."""
TENANT_RULE = "must be 1 to 64 letters, digits, '_' or '-'"
SETTLE = 2.0
"""Seconds between sweeps of the versions."""
RECENT = timedelta(seconds=30)
"""How far back a sweep looks: longer than a crash and a take-over last."""
COUNTED: dict[str, tuple[str, Document]] = {
    "users": ("users", {}),
    "roles": ("roles", {}),
    "applications": ("applications", {}),
    "consumers": ("applications", {"events": True}),
    "records": ("menus", {}),
}
"""Limits that are enforced here: the collection that counts, and the documents of it."""


class TenantSettings(msgspec.Struct, kw_only=True):
    """`GET /tenant/settings`."""

    viewers_may_command: bool
    """Whether functions to view suffice to set values and call services."""
    notice: bool
    """Whether an upgrade turned `viewers_may_command` on, and no super-admin has set it since."""


class TenantStore:
    """The collection `tenants`."""

    def __init__(self, database: Database, defaults: Limits | None = None) -> None:
        self._database = database
        self._tenants = database["tenants"]
        self._defaults: dict[str, int] = msgspec.to_builtins(defaults or Limits())

    async def exists(self, tenant: str) -> bool:
        """Tell whether there is such a tenant."""
        return await self._tenants.find_one({"_id": tenant}, {"_id": 1}) is not None

    async def insert(self, tenant: str, session: Session) -> None:
        """Add a tenant; raise `Conflict` when it is there."""
        now = datetime.now(UTC)
        document = {
            "_id": tenant,
            "access": 0,
            "accessChangedAt": now,
            "createdAt": now,
            "viewersMayCommand": False,
        }
        try:
            await self._tenants.insert_one(document, session=session)
        except DuplicateKey as error:
            raise Conflict(f"there is a tenant {tenant} already", field="name") from error

    async def all(self, users: Mapping[str, int]) -> list[Tenant]:
        """Every tenant by name, with how many `users` it has."""
        return [
            Tenant(
                name=document["_id"],
                created_at=to_ms(document["createdAt"]),
                users=users.get(document["_id"], 0),
            )
            async for document in self._tenants.find().sort("_id", 1)
        ]

    async def own_limits(
        self, tenant: str, session: Session | None = None
    ) -> dict[str, int] | None:
        """The limits that are the tenant's own, None when there is no such tenant."""
        found = await self._tenants.find_one({"_id": tenant}, {"limits": 1}, session=session)
        return None if found is None else found.get("limits", {})

    async def reserve(self, tenant: str, session: Session, limit: str) -> None:
        """Raise `TooManyRequests` when a tenant has as many documents as `limit` permits.

        The update makes concurrent additions of a tenant conflict in MongoDB, so none slips past.
        """
        found = await self._tenants.find_one_and_update(
            {"_id": tenant}, {"$inc": {"additions": 1}}, {"limits": 1}, session=session
        )
        most = (found or {}).get("limits", {}).get(limit, self._defaults[limit])
        name, only = COUNTED[limit]
        query, options = {"tenant": tenant, **only}, {"session": session, "limit": most}
        if await self._database[name].count_documents(query, **options) >= most:
            count_limited(limit, tenant)
            raise limit_reached(limit, most)

    async def used(self, tenant: str) -> dict[str, int]:
        """Return how many documents a tenant has under each limit that only `auth` counts."""
        return {
            limit: await self._database[name].count_documents({"tenant": tenant, **only})
            for limit, (name, only) in COUNTED.items()
            if limit != "records"
        }

    async def event_limits(self, below: float) -> dict[str, int]:
        """Return how many bytes of events tenants may retain, of those that may fewer than so."""
        name = "retainedEventBytes"
        default = self._defaults[name]
        query = {} if default < below else {f"limits.{name}": {"$lt": below}}
        found = self._tenants.find(query, {f"limits.{name}": 1})
        limits = {one["_id"]: one.get("limits", {}).get(name, default) async for one in found}
        return {tenant: most for tenant, most in limits.items() if most < below}

    async def record_purge(self, tenant: str, events: int, share: int) -> None:
        """Store that `events` of a tenant were purged, which exceeded its share (bytes)."""
        now = {"purge.at": datetime.now(UTC), "purge.share": share}
        change = {"$set": now, "$inc": {"purge.events": events}}
        await self._tenants.update_one({"_id": tenant}, change)

    async def last_purge(self, tenant: str) -> Document | None:
        """Return `at`, `share` and `events` of a tenant's purges, None when there was none."""
        found = await self._tenants.find_one({"_id": tenant}, {"purge": 1})
        return None if found is None else found.get("purge")

    async def set_limits(self, tenant: str, limits: dict[str, int], session: Session) -> None:
        """Set the limits that are the tenant's own."""
        await self._tenants.update_one(
            {"_id": tenant}, {"$set": {"limits": limits}}, session=session
        )

    async def settings(self, tenant: str, session: Session | None = None) -> TenantSettings | None:
        """Return whether the tenant's viewers may command devices, None without the tenant.

        A tenant without the field is older than the setting (such as one moved in from an older
        installation): there it is on, with the notice.
        """
        fields = {"viewersMayCommand": 1, "commandNotice": 1}
        found = await self._tenants.find_one({"_id": tenant}, fields, session=session)
        if found is None:
            return None
        is_older = "viewersMayCommand" not in found
        return TenantSettings(
            viewers_may_command=found.get("viewersMayCommand", True),
            notice=found.get("commandNotice", is_older),
        )

    async def set_settings(
        self, tenant: str, session: Session, *, viewers_may_command: bool
    ) -> None:
        """Store the setting, which ends the notice."""
        fields = {"viewersMayCommand": viewers_may_command, "commandNotice": False}
        await self._tenants.update_one({"_id": tenant}, {"$set": fields}, session=session)

    async def version(self, tenant: str, session: Session) -> int:
        """The version of the tenant's access, 0 when there is no such tenant."""
        found = await self._tenants.find_one({"_id": tenant}, {"access": 1}, session=session)
        return int(found["access"]) if found else 0

    async def raise_version(self, tenant: str, session: Session) -> int:
        """Raise the version in the caller's transaction; raise `NotFound` without the tenant."""
        document = await self._tenants.find_one_and_update(
            {"_id": tenant},
            {"$inc": {"access": 1}, "$set": {"accessChangedAt": datetime.now(UTC)}},
            return_document=ReturnDocument.AFTER,
            session=session,
        )
        if document is None:
            raise NotFound(f"there is no tenant {tenant}", field="tenant")
        return int(document["access"])

    async def settle_versions(self, versions: AccessVersions) -> None:
        """Make good, for ever, what a crash left out between MongoDB and Redis."""

        async def settle() -> None:
            recent = {"accessChangedAt": {"$gt": datetime.now(UTC) - RECENT}}
            async for document in self._tenants.find(recent, {"access": 1}):
                await versions.reach(document["_id"], document["access"])

        await repeat(settle, SETTLE, "access versions are settled later")


class ConsoleClients:
    """The collection `console_clients`: `{_id: client id, secretHash, tenant, createdAt}`."""

    def __init__(self, database: Database) -> None:
        self._clients = database["console_clients"]

    async def get(self, client_id: str) -> tuple[str | None, str | None]:
        """The secret's hash and the tenant; no hash when there is no such client."""
        found = await self._clients.find_one({"_id": client_id}, {"secretHash": 1, "tenant": 1})
        return (found["secretHash"], found["tenant"]) if found else (None, None)

    async def insert(self, client_id: str, secret_hash: str, tenant: str, session: Session) -> None:
        """Add the client of a tenant."""
        document = {
            "_id": client_id,
            "secretHash": secret_hash,
            "tenant": tenant,
            "createdAt": datetime.now(UTC),
        }
        await self._clients.insert_one(document, session=session)
