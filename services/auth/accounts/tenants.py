"""Tenants in MongoDB, and the version of their users' permissions.

`tenants`: `{_id: name, access, accessChangedAt, createdAt, limits?, additions?, purge?,
viewersMayCommand, commandNotice?}`. `access` is the version of the tenant's users, roles, menus and
grants. `limits` holds its individual limits by name. `additions` counts additions under a limit.
`purge` holds the latest purge of its events. `viewersMayCommand` is the setting of decision 0048,
and `commandNotice` is true if an upgrade turned it on.
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
from libs.common.limits.quota import limit_error
from libs.common.limits.tenants import count_rejection
from libs.common.scheduling.turns import repeat
from libs.common.store.mongo import Database, Document, Session, raise_on_duplicate

log = logging.getLogger(__name__)

DEFAULT_TENANT = "default"
"""The tenant that the first start creates."""
TENANT_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Pattern of tenant names, which are tokens of NATS subjects."""
TENANT_RULE_TEXT = "must be 1 to 64 letters, digits, '_' or '-'"
VERSION_COPY_INTERVAL_SECONDS = 2.0
"""Seconds between two copies of recent access versions to Redis."""
MAX_COPIED_CHANGE_AGE = timedelta(seconds=30)
"""Age up to which a changed version is copied: longer than a takeover after a crash lasts."""
COUNTED_DOCUMENTS_BY_LIMIT: dict[str, tuple[str, Document]] = {
    "users": ("users", {}),
    "roles": ("roles", {}),
    "applications": ("applications", {}),
    "consumers": ("applications", {"events": True}),
    "records": ("menus", {}),
}
"""By limit that `auth` enforces: the collection and the filter of the documents to count."""


class TenantSettings(msgspec.Struct, kw_only=True):
    """Response of `GET /tenant/settings`."""

    viewers_may_command: bool
    """Whether view permissions allow users to set values and call services."""
    notice: bool
    """Whether consoles show a notice, because an upgrade turned `viewers_may_command` on, and no
    super-admin has set it since."""


class TenantStore:
    """The collection `tenants`."""

    def __init__(self, database: Database, defaults: Limits | None = None) -> None:
        self._database = database
        self._tenants = database["tenants"]
        self._defaults: dict[str, int] = msgspec.to_builtins(defaults or Limits())

    async def exists(self, tenant: str) -> bool:
        """Return whether a tenant exists."""
        return await self._tenants.find_one({"_id": tenant}, {"_id": 1}) is not None

    async def insert(self, tenant: str, session: Session) -> None:
        """Add a tenant; raise `Conflict` if it exists."""
        now = datetime.now(UTC)
        document = {
            "_id": tenant,
            "access": 0,
            "accessChangedAt": now,
            "createdAt": now,
            "viewersMayCommand": False,
        }
        with raise_on_duplicate(Conflict(f"tenant `{tenant}` exists already", field="name")):
            await self._tenants.insert_one(document, session=session)

    async def list_all(self, user_counts: Mapping[str, int]) -> list[Tenant]:
        """Return all tenants sorted by name, with the number of their users."""
        return [
            Tenant(
                name=document["_id"],
                created_at=to_ms(document["createdAt"]),
                users=user_counts.get(document["_id"], 0),
            )
            async for document in self._tenants.find().sort("_id", 1)
        ]

    async def get_individual_limits(
        self, tenant: str, session: Session | None = None
    ) -> dict[str, int] | None:
        """Return a tenant's individual limits; None if the tenant does not exist."""
        document = await self._tenants.find_one({"_id": tenant}, {"limits": 1}, session=session)
        return None if document is None else document.get("limits", {})

    async def require_below_limit(self, tenant: str, session: Session, limit: str) -> None:
        """Raise `TooManyRequests` if a tenant has reached `limit`.

        The update makes concurrent additions of a tenant conflict in MongoDB, so none exceeds the
        limit.
        """
        document = await self._tenants.find_one_and_update(
            {"_id": tenant}, {"$inc": {"additions": 1}}, {"limits": 1}, session=session
        )
        maximum = (document or {}).get("limits", {}).get(limit, self._defaults[limit])
        name, only = COUNTED_DOCUMENTS_BY_LIMIT[limit]
        query, options = {"tenant": tenant, **only}, {"session": session, "limit": maximum}
        if await self._database[name].count_documents(query, **options) >= maximum:
            count_rejection(limit, tenant)
            raise limit_error(limit, maximum)

    async def count_limited_documents(self, tenant: str) -> dict[str, int]:
        """Return the number of documents by limit; menus (`records`) are not counted."""
        return {
            limit: await self._database[name].count_documents({"tenant": tenant, **only})
            for limit, (name, only) in COUNTED_DOCUMENTS_BY_LIMIT.items()
            if limit != "records"
        }

    async def list_event_byte_limits_below(self, bound: float) -> dict[str, int]:
        """Return limits of retained event bytes by tenant, only those below `bound`."""
        name = "retainedEventBytes"
        default = self._defaults[name]
        query = {} if default < bound else {f"limits.{name}": {"$lt": bound}}
        cursor = self._tenants.find(query, {f"limits.{name}": 1})
        limits = {
            tenant["_id"]: tenant.get("limits", {}).get(name, default) async for tenant in cursor
        }
        return {tenant: maximum for tenant, maximum in limits.items() if maximum < bound}

    async def record_event_purge(self, tenant: str, purged_events: int, share_bytes: int) -> None:
        """Add to the tenant's total of purged events; store the time and the share."""
        now = {"purge.at": datetime.now(UTC), "purge.share": share_bytes}
        change = {"$set": now, "$inc": {"purge.events": purged_events}}
        await self._tenants.update_one({"_id": tenant}, change)

    async def get_event_purge(self, tenant: str) -> Document | None:
        """Return time and share (bytes) of the latest purge, and the total of events.

        The keys are `at`, `share` and `events`. Returns None if no events were purged.
        """
        document = await self._tenants.find_one({"_id": tenant}, {"purge": 1})
        return None if document is None else document.get("purge")

    async def set_limits(self, tenant: str, limits: dict[str, int], session: Session) -> None:
        """Store the tenant's individual limits."""
        await self._tenants.update_one(
            {"_id": tenant}, {"$set": {"limits": limits}}, session=session
        )

    async def get_settings(
        self, tenant: str, session: Session | None = None
    ) -> TenantSettings | None:
        """Return a tenant's settings; None if the tenant does not exist.

        A tenant without `viewersMayCommand` is older than this setting, for example moved from an
        older installation. Its viewers may command devices, and the notice is shown.
        """
        fields = {"viewersMayCommand": 1, "commandNotice": 1}
        document = await self._tenants.find_one({"_id": tenant}, fields, session=session)
        if document is None:
            return None
        is_older = "viewersMayCommand" not in document
        return TenantSettings(
            viewers_may_command=document.get("viewersMayCommand", True),
            notice=document.get("commandNotice", is_older),
        )

    async def set_settings(
        self, tenant: str, session: Session, *, viewers_may_command: bool
    ) -> None:
        """Store `viewersMayCommand` and clear the notice about it."""
        fields = {"viewersMayCommand": viewers_may_command, "commandNotice": False}
        await self._tenants.update_one({"_id": tenant}, {"$set": fields}, session=session)

    async def get_access_version(self, tenant: str, session: Session) -> int:
        """Return a tenant's access version; 0 if the tenant does not exist."""
        document = await self._tenants.find_one({"_id": tenant}, {"access": 1}, session=session)
        return int(document["access"]) if document else 0

    async def raise_access_version(self, tenant: str, session: Session) -> int:
        """Increase and return the access version of a tenant; raise `NotFound`."""
        document = await self._tenants.find_one_and_update(
            {"_id": tenant},
            {"$inc": {"access": 1}, "$set": {"accessChangedAt": datetime.now(UTC)}},
            return_document=ReturnDocument.AFTER,
            session=session,
        )
        if document is None:
            raise NotFound(f"tenant `{tenant}` does not exist", field="tenant")
        return int(document["access"])

    async def copy_recent_versions_forever(self, versions: AccessVersions) -> None:
        """Copy recently changed access versions to Redis periodically."""

        async def copy_recent_versions() -> None:
            recent = {"accessChangedAt": {"$gt": datetime.now(UTC) - MAX_COPIED_CHANGE_AGE}}
            async for document in self._tenants.find(recent, {"access": 1}):
                await versions.raise_to(document["_id"], document["access"])

        await repeat(
            copy_recent_versions,
            VERSION_COPY_INTERVAL_SECONDS,
            "access versions were not copied to Redis; retrying",
        )


class ConsoleClientStore:
    """The collection `console_clients`: `{_id, secretHash, tenant, createdAt}`.

    `_id` is the client id.
    """

    def __init__(self, database: Database) -> None:
        self._clients = database["console_clients"]

    async def find_secret_hash_and_tenant(self, client_id: str) -> tuple[str | None, str | None]:
        """Return a client's secret hash and tenant; (None, None) if unknown."""
        document = await self._clients.find_one({"_id": client_id}, {"secretHash": 1, "tenant": 1})
        return (document["secretHash"], document["tenant"]) if document else (None, None)

    async def insert(self, client_id: str, secret_hash: str, tenant: str, session: Session) -> None:
        """Add the console client of a tenant."""
        document = {
            "_id": client_id,
            "secretHash": secret_hash,
            "tenant": tenant,
            "createdAt": datetime.now(UTC),
        }
        await self._clients.insert_one(document, session=session)
