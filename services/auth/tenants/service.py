"""Creates tenants with role, menus, console client; changes limits and settings."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from libs.common.bus import RpcServer
from libs.common.clock import to_ms
from libs.common.contracts.auth import CreatedTenant, CreateTenant, ListTenants, Tenants
from libs.common.contracts.limits import GetLimits, Limits, SetLimits, TenantLimits, UsageRequest
from libs.common.decoding import parse_validation_error
from libs.common.errors import Conflict, InvalidInput, NotFound
from libs.common.identity import Caller, Principal
from libs.common.limits.tenants import UsageCollector
from libs.common.store.mongo import Session
from services.auth.accounts import Accounts
from services.auth.accounts.roles import (
    INITIAL_MENUS,
    INITIAL_SUPER_ADMIN_ROLE_ID,
    SUPER_ADMIN_ROLE_NAME,
    Menu,
    Role,
)
from services.auth.accounts.tenants import (
    DEFAULT_TENANT,
    TENANT_PATTERN,
    TENANT_RULE_TEXT,
    TenantSettings,
    TenantStore,
)
from services.auth.audit import AuditTarget
from services.auth.changes import ChangeRunner, ChangeTransaction, build_operator_caller
from services.auth.client_secrets import generate_secret, hash_secret

WIRE_LIMIT_NAMES = Limits.__struct_encode_fields__
"""Names of the limits on the wire, in camelCase."""


class LimitUsage(msgspec.Struct, omit_defaults=True):
    """A limit and its usage. Limits named `each…` apply to one principal: the caller."""

    name: str
    limit: int
    """Maximum."""
    own: bool = False
    """Whether the operator set it for this tenant."""
    used: int | float | None = None
    """Current usage. Absent if it is not counted."""


class EventPurge(msgspec.Struct):
    """The latest purge of events beyond the tenant's share of a stream."""

    at: int
    """Time in ms."""
    share: int
    """Maximum bytes of the tenant's events at that time."""
    events: int
    """Total number of events that all purges deleted before they expired."""


class TenantUsage(msgspec.Struct, omit_defaults=True):
    """The limits that apply to the caller."""

    tenant: str
    """Id of the tenant."""
    limits: list[LimitUsage]
    """Every limit with its usage."""
    event_purge: EventPurge | None = None
    """Absent if no events were purged."""


@dataclass(frozen=True)
class TenantLimitsService:
    """Returns and changes the limits of tenants."""

    changes: ChangeRunner
    tenants: TenantStore
    defaults: Limits
    questions: UsageCollector

    async def get(self, request: GetLimits) -> TenantLimits:
        """Return the limits of a tenant; the defaults if the tenant does not exist."""
        return self._merge_defaults(await self.tenants.get_individual_limits(request.tenant) or {})

    async def set(self, request: SetLimits) -> TenantLimits:
        """Change individual limits; None restores the default.

        Raises `InvalidInput` with the limit, or `NotFound`.
        """
        for name, value in request.limits.items():
            _require_valid_limit(name, value)

        async def set_limits(change: ChangeTransaction) -> dict[str, int]:
            before = await self.tenants.get_individual_limits(request.tenant, change.session)
            if before is None:
                raise NotFound(f"tenant `{request.tenant}` does not exist", field="tenant")
            both = {**before, **request.limits}
            after = {name: value for name, value in both.items() if value is not None}
            if after != before:
                await self.tenants.set_limits(request.tenant, after, change.session)
                target = AuditTarget("tenant", request.tenant, request.tenant)
                change.record("limited", target, before=before, after=after)
            return after

        return self._merge_defaults(
            await self.changes.run(build_operator_caller(request.tenant), set_limits)
        )

    async def get_usage(self, caller: Principal) -> TenantUsage:
        """Return limits and usage of a caller and its tenant.

        Raises as `UsageCollector.collect`.
        """
        request = UsageRequest(caller.tenant, caller.kind, caller.subject)
        used = {
            **await self.questions.collect(request),
            **await self.tenants.count_limited_documents(caller.tenant),
        }
        known = await self.get(GetLimits(caller.tenant))
        limits: dict[str, int] = msgspec.to_builtins(known.limits)
        purge = await self.tenants.get_event_purge(caller.tenant)
        return TenantUsage(
            caller.tenant,
            [
                LimitUsage(name, maximum, own=name in known.own, used=used.get(name))
                for name, maximum in limits.items()
            ],
            EventPurge(to_ms(purge["at"]), purge["share"], purge["events"]) if purge else None,
        )

    def _merge_defaults(self, stored: dict[str, int]) -> TenantLimits:
        own_limits: dict[str, Any] = {
            name: stored[name] for name in WIRE_LIMIT_NAMES if name in stored
        }
        both = msgspec.to_builtins(self.defaults) | own_limits
        return TenantLimits(msgspec.convert(both, Limits), own_limits)


def _require_valid_limit(name: str, value: int | None) -> None:
    if name not in WIRE_LIMIT_NAMES:
        raise InvalidInput(
            f"unknown limit `{name}`; must be one of {', '.join(WIRE_LIMIT_NAMES)}", field=name
        )
    try:
        msgspec.convert({} if value is None else {name: value}, Limits)
    except msgspec.ValidationError as error:
        raise InvalidInput(parse_validation_error(str(error)).reason, field=name) from error


class ChangeTenantSettings(msgspec.Struct, kw_only=True):
    """Body of `PUT /tenant/settings`."""

    viewers_may_command: bool
    """Whether view permissions allow users to set values and call services."""


@dataclass(frozen=True)
class TenantService:
    """Creates and lists tenants, for the operator of the platform."""

    changes: ChangeRunner
    accounts: Accounts

    async def ensure_default(self) -> None:
        """Create the default tenant unless it exists. Safe with several replicas."""
        if await self.accounts.tenants.exists(DEFAULT_TENANT):
            return
        with suppress(Conflict):
            await self._add_tenant(DEFAULT_TENANT, INITIAL_SUPER_ADMIN_ROLE_ID, INITIAL_MENUS)

    async def create(self, request: CreateTenant) -> CreatedTenant:
        """Create a tenant and return the secret of its console client once.

        Raises `InvalidInput` or `Conflict`.
        """
        if not TENANT_PATTERN.fullmatch(request.name):
            raise InvalidInput(TENANT_RULE_TEXT, field="name")
        client_id, secret = str(uuid4()), generate_secret()
        role_id, menus = await self.accounts.roles.next_id(), await self._copy_initial_menus()
        await self._add_tenant(request.name, role_id, menus, (client_id, hash_secret(secret)))
        return CreatedTenant(request.name, client_id, secret)

    async def list(self, _: ListTenants) -> Tenants:
        """Return all tenants sorted by name, with the number of their users."""
        users = await self.accounts.users.count_by_tenant()
        return Tenants(await self.accounts.tenants.list_all(users))

    async def _add_tenant(
        self,
        tenant: str,
        role_id: int,
        menus: Sequence[Menu],
        client: tuple[str, str] | None = None,
    ) -> None:
        """Store a tenant; `client` is its console client's id and secret hash."""
        accounts = self.accounts
        role = Role(
            id=role_id, name=SUPER_ADMIN_ROLE_NAME, description="", created_at=datetime.now(UTC)
        )

        async def insert_tenant(change: ChangeTransaction) -> None:
            await accounts.tenants.insert(tenant, change.session)
            await accounts.roles.insert(tenant, role, change.session)
            await accounts.menus.insert_all(tenant, menus, change.session)
            if client is not None:
                await accounts.console_clients.insert(*client, tenant, change.session)
            change.record_access_change("created", AuditTarget("tenant", tenant, tenant))

        await self.changes.run(build_operator_caller(tenant), insert_tenant)

    async def _copy_initial_menus(self) -> Sequence[Menu]:
        """Return the initial menus with new ids."""
        ids = {menu.id: await self.accounts.menus.next_id() for menu in INITIAL_MENUS}
        return [
            replace(menu, id=ids[menu.id], parent_id=menu.parent_id and ids[menu.parent_id])
            for menu in INITIAL_MENUS
        ]


@dataclass(frozen=True)
class TenantSettingsService:
    """Returns and changes the settings of tenants."""

    changes: ChangeRunner
    tenants: TenantStore

    async def get(self, tenant: str) -> TenantSettings:
        """Return the settings; raise `NotFound`."""
        return await self._require_settings(tenant)

    async def change(self, caller: Caller, request: ChangeTenantSettings) -> TenantSettings:
        """Store the settings for all replicas; raise `NotFound`.

        Storing the same value again ends the notice and is not audited.
        """
        tenant, viewers = caller.tenant, request.viewers_may_command

        async def change_settings(change: ChangeTransaction) -> None:
            before = await self._require_settings(tenant, change.session)
            await self.tenants.set_settings(tenant, change.session, viewers_may_command=viewers)
            if before.viewers_may_command != viewers:
                change.record_access_change(
                    "updated",
                    AuditTarget("tenant", tenant, tenant),
                    before={"viewers_may_command": before.viewers_may_command},
                    after={"viewers_may_command": viewers},
                )

        await self.changes.run(caller, change_settings)
        return TenantSettings(viewers_may_command=viewers, notice=False)

    async def _require_settings(
        self, tenant: str, session: Session | None = None
    ) -> TenantSettings:
        settings = await self.tenants.get_settings(tenant, session)
        if settings is None:
            raise NotFound(f"tenant `{tenant}` does not exist", field="tenant")
        return settings


def offer_tenants(rpc: RpcServer, service: TenantService, limits: TenantLimitsService) -> None:
    """Offer the operations on tenants as `rpc.auth.…`."""
    rpc.offer("create_tenant", CreateTenant, service.create)
    rpc.offer("list_tenants", ListTenants, service.list)
    rpc.offer("get_limits", GetLimits, limits.get)
    rpc.offer("set_limits", SetLimits, limits.set)
