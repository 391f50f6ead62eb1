"""Stored account data of tenants: users, roles, menus, grants, console clients.

Each module holds one collection: its struct and its store. Operations are in the packages above
(`users`, `roles`, `menus`, `grants`, `tenants`), because most of them use several collections.
Every query names the tenant. Writes join the transaction of their session.
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
