"""Stored account data: tenants, users, roles, menus, grants, console clients.

Each module holds one or two collections with their structs and stores. The operations are in
`services.auth.users`, `roles`, `menus`, `grants` and `tenants`, because most of them use several
collections. Queries on behalf of a tenant name this tenant. Writes with a session join its
transaction.
"""

from libs.common.contracts.limits import Limits
from libs.common.store.mongo import Database
from services.auth.accounts.grants import GrantStore
from services.auth.accounts.roles import MenuStore, RoleStore
from services.auth.accounts.tenants import ConsoleClientStore, TenantStore
from services.auth.accounts.users import UserStore


class Accounts:
    """The account stores of one process."""

    def __init__(self, database: Database, defaults: Limits | None = None) -> None:
        self.tenants = TenantStore(database, defaults)
        self.users = UserStore(database)
        self.roles = RoleStore(database)
        self.menus = MenuStore(database)
        self.grants = GrantStore(database)
        self.console_clients = ConsoleClientStore(database)
