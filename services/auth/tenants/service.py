"""Creates tenants with a super-admin role, menus and a console client; settings."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from libs.common.bus import RpcServer
from libs.common.contracts.auth import CreatedTenant, CreateTenant, ListTenants, Tenants
from libs.common.contracts.limits import GetLimits, SetLimits
from libs.common.errors import Conflict, InvalidInput, NotFound
from libs.common.identity import Caller
from libs.common.store.mongo import Session
from services.auth.accounts import Accounts
from services.auth.accounts.roles import INITIAL_MENUS, SUPER_ADMIN, SUPER_ADMIN_ID, Menu, Role
from services.auth.accounts.tenants import (
    DEFAULT_TENANT,
    TENANT,
    TENANT_RULE,
    TenantSettings,
    TenantStore,
)
from services.auth.audit import Subject
from services.auth.changes import Change, Changes, operator
from services.auth.client_secrets import generate_secret, hash_secret
from services.auth.tenants.limits import TenantLimitsService


class ChangeTenantSettings(msgspec.Struct, kw_only=True):
    """Body of `PUT /tenant/settings`."""

    viewers_may_command: bool


@dataclass(frozen=True)
class TenantService:
    """Creates and lists tenants, for the operator of the platform."""

    changes: Changes
    accounts: Accounts

    async def ensure_default(self) -> None:
        """Create the default tenant unless it exists. Safe with several replicas."""
        if await self.accounts.tenants.exists(DEFAULT_TENANT):
            return
        with suppress(Conflict):
            await self._add(DEFAULT_TENANT, SUPER_ADMIN_ID, INITIAL_MENUS)

    async def create(self, wanted: CreateTenant) -> CreatedTenant:
        """Create a tenant and return the secret of its console client once.

        Raises `InvalidInput` or `Conflict`.
        """
        if not TENANT.fullmatch(wanted.name):
            raise InvalidInput(TENANT_RULE, field="name")
        client_id, secret = str(uuid4()), generate_secret()
        role_id, menus = await self.accounts.roles.next_id(), await self._renumber_menus()
        await self._add(wanted.name, role_id, menus, (client_id, hash_secret(secret)))
        return CreatedTenant(wanted.name, client_id, secret)

    async def list(self, _: ListTenants) -> Tenants:
        """Return all tenants sorted by name, with the number of their users."""
        users = await self.accounts.users.count_by_tenant()
        return Tenants(await self.accounts.tenants.list_all(users))

    async def _add(
        self,
        tenant: str,
        role_id: int,
        menus: Sequence[Menu],
        client: tuple[str, str] | None = None,
    ) -> None:
        """Store a tenant; `client` is its console client's id and secret hash."""
        accounts = self.accounts
        role = Role(id=role_id, name=SUPER_ADMIN, description="", created_at=datetime.now(UTC))

        async def insert_tenant(change: Change) -> None:
            await accounts.tenants.insert(tenant, change.session)
            await accounts.roles.insert(tenant, role, change.session)
            await accounts.menus.insert_all(tenant, menus, change.session)
            if client is not None:
                await accounts.console_clients.insert(*client, tenant, change.session)
            change.record_access("created", Subject("tenant", tenant, tenant))

        await self.changes.run(operator(tenant), insert_tenant)

    async def _renumber_menus(self) -> Sequence[Menu]:
        """Return the initial menus with new ids."""
        ids = {menu.id: await self.accounts.menus.next_id() for menu in INITIAL_MENUS}
        return [
            replace(menu, id=ids[menu.id], parent_id=menu.parent_id and ids[menu.parent_id])
            for menu in INITIAL_MENUS
        ]


@dataclass(frozen=True)
class TenantSettingsService:
    """Returns and changes the settings of tenants."""

    changes: Changes
    tenants: TenantStore

    async def get(self, tenant: str) -> TenantSettings:
        """Return the settings; raise `NotFound`."""
        return await self._settings(tenant)

    async def change(self, caller: Caller, wanted: ChangeTenantSettings) -> TenantSettings:
        """Store the settings for all replicas; raise `NotFound`.

        Storing the same value again ends the notice and is not audited.
        """
        tenant, viewers = caller.tenant, wanted.viewers_may_command

        async def change_settings(change: Change) -> None:
            before = await self._settings(tenant, change.session)
            await self.tenants.set_settings(tenant, change.session, viewers_may_command=viewers)
            if before.viewers_may_command != viewers:
                change.record_access(
                    "updated",
                    Subject("tenant", tenant, tenant),
                    before={"viewers_may_command": before.viewers_may_command},
                    after={"viewers_may_command": viewers},
                )

        await self.changes.run(caller, change_settings)
        return TenantSettings(viewers_may_command=viewers, notice=False)

    async def _settings(self, tenant: str, session: Session | None = None) -> TenantSettings:
        found = await self.tenants.settings(tenant, session)
        if found is None:
            raise NotFound(f"tenant `{tenant}` does not exist", field="tenant")
        return found


def offer_tenants(rpc: RpcServer, service: TenantService, limits: TenantLimitsService) -> None:
    """Offer the operations on tenants as `rpc.auth.…`."""
    rpc.offer("create_tenant", CreateTenant, service.create)
    rpc.offer("list_tenants", ListTenants, service.list)
    rpc.offer("get_limits", GetLimits, limits.get)
    rpc.offer("set_limits", SetLimits, limits.set)
