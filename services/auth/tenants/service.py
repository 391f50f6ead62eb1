"""Makes tenants: each with a role `super_admin`, the menu tree and a console client of its own."""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol
from uuid import uuid4

from libs.common.contracts.tenants import (
    CreatedTenant,
    CreateTenant,
    ListTenants,
    Tenant,
    Tenants,
)
from libs.common.errors import Conflict, InvalidInput
from services.auth.audit.schemas import Subject
from services.auth.changes import Change, Changes, operator
from services.auth.secret_hash import new_secret, secret_hash
from services.auth.tenants.seed import DEFAULT_TENANT, MENUS, SUPER_ADMIN_ID, SeedMenu

NextId = Callable[[], Awaitable[int]]

TENANT = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""A tenant is one token of a bus subject."""


@dataclass(frozen=True, slots=True)
class Seeds:
    """A tenant in the making."""

    tenant: str
    super_admin: int
    """The id of its role `super_admin`."""
    menus: Sequence[SeedMenu]
    client: tuple[str, str] | None = None
    """Id and secret's hash of its console client."""


class Store(Protocol):
    """Where tenants and what they begin with are kept."""

    async def exists(self, tenant: str) -> bool:
        """Tell whether there is such a tenant."""

    async def insert(self, seeds: Seeds, change: Change) -> None:
        """Write it all; raise `Conflict` when there is such a tenant."""

    async def all(self) -> list[Tenant]:
        """Every tenant by name."""


class TenantService:
    """Creates and lists tenants; only the operator of the platform does."""

    def __init__(
        self, changes: Changes, store: Store, next_role: NextId, next_menu: NextId
    ) -> None:
        self._changes = changes
        self._store = store
        self._next_role = next_role
        self._next_menu = next_menu

    async def ensure_default(self) -> None:
        """Make the default tenant unless it is there; another replica may be doing the same."""
        if await self._store.exists(DEFAULT_TENANT):
            return
        with suppress(Conflict):
            await self._add(Seeds(DEFAULT_TENANT, SUPER_ADMIN_ID, MENUS))

    async def create(self, wanted: CreateTenant) -> CreatedTenant:
        """Make a tenant; raise `InvalidInput` or `Conflict`. The secret is shown once."""
        if not TENANT.fullmatch(wanted.name):
            raise InvalidInput("must be 1 to 64 letters, digits, '_' or '-'", field="name")
        client_id, secret = str(uuid4()), new_secret()
        await self._add(
            Seeds(
                wanted.name,
                await self._next_role(),
                await self._renumbered(),
                (client_id, secret_hash(secret)),
            )
        )
        return CreatedTenant(wanted.name, client_id, secret)

    async def list(self, _: ListTenants) -> Tenants:
        """Every tenant by name."""
        return Tenants(await self._store.all())

    async def _add(self, seeds: Seeds) -> None:
        async def work(change: Change) -> None:
            await self._store.insert(seeds, change)
            change.record_access("created", Subject("tenant", seeds.tenant, seeds.tenant))

        await self._changes.run(operator(seeds.tenant), work)

    async def _renumbered(self) -> Sequence[SeedMenu]:
        """The tree under ids that no other tenant has."""
        ids = {menu.id: await self._next_menu() for menu in MENUS}
        return [
            SeedMenu(ids[menu.id], menu.code, None if menu.parent is None else ids[menu.parent])
            for menu in MENUS
        ]
