"""Makes tenants: each with a role `super_admin`, the menu tree and a console client of its own."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from uuid import uuid4

from msgspec.structs import replace

from libs.common.contracts.auth import CreatedTenant, CreateTenant, ListTenants, Tenants
from libs.common.errors import Conflict, InvalidInput
from services.auth.accounts import Accounts
from services.auth.accounts.menus import Menu
from services.auth.accounts.roles import SUPER_ADMIN, Role
from services.auth.accounts.tenants import DEFAULT_TENANT, TENANT, TENANT_RULE
from services.auth.audit.schemas import Subject
from services.auth.changes import Change, Changes, operator
from services.auth.secret_hash import new_secret, secret_hash
from services.auth.tenants.seed import MENUS, SUPER_ADMIN_ID

NextId = Callable[[], Awaitable[int]]


class TenantService:
    """Creates and lists tenants; only the operator of the platform does."""

    def __init__(
        self, changes: Changes, accounts: Accounts, next_role: NextId, next_menu: NextId
    ) -> None:
        self._changes = changes
        self._accounts = accounts
        self._next_role = next_role
        self._next_menu = next_menu

    async def ensure_default(self) -> None:
        """Make the default tenant unless it is there; another replica may be doing the same."""
        if await self._accounts.tenants.exists(DEFAULT_TENANT):
            return
        with suppress(Conflict):
            await self._add(DEFAULT_TENANT, SUPER_ADMIN_ID, MENUS)

    async def create(self, wanted: CreateTenant) -> CreatedTenant:
        """Make a tenant; raise `InvalidInput` or `Conflict`. The secret is shown once."""
        if not TENANT.fullmatch(wanted.name):
            raise InvalidInput(TENANT_RULE, field="name")
        client_id, secret = str(uuid4()), new_secret()
        role_id, menus = await self._next_role(), await self._renumbered()
        await self._add(wanted.name, role_id, menus, (client_id, secret_hash(secret)))
        return CreatedTenant(wanted.name, client_id, secret)

    async def list(self, _: ListTenants) -> Tenants:
        """Every tenant by name, with how many users it has."""
        users = await self._accounts.users.count_by_tenant()
        return Tenants(await self._accounts.tenants.all(users))

    async def _add(
        self,
        tenant: str,
        role_id: int,
        menus: Sequence[Menu],
        client: tuple[str, str] | None = None,
    ) -> None:
        """`client` has the id and the secret's hash of the tenant's console client."""
        accounts = self._accounts
        role = Role(id=role_id, name=SUPER_ADMIN, description="", created_at=datetime.now(UTC))

        async def work(change: Change) -> None:
            await accounts.tenants.insert(tenant, change.session)
            await accounts.roles.insert(tenant, role, change.session)
            await accounts.menus.insert_all(tenant, menus, change.session)
            if client is not None:
                await accounts.console_clients.insert(*client, tenant, change.session)
            change.record_access("created", Subject("tenant", tenant, tenant))

        await self._changes.run(operator(tenant), work)

    async def _renumbered(self) -> Sequence[Menu]:
        """The tree under ids that no other tenant has."""
        ids = {menu.id: await self._next_menu() for menu in MENUS}
        return [
            replace(menu, id=ids[menu.id], parent_id=menu.parent_id and ids[menu.parent_id])
            for menu in MENUS
        ]
