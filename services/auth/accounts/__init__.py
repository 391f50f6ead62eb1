"""What belongs to a tenant: its users, roles, menus, grants and console clients, as stored.

One module for each collection: its struct and its store. The packages of the operations (`users`,
`roles`, `menus`, `grants`, `tenants`) are above, because most of them touch several collections.
Every query names the tenant; writes take part in the transaction of their session.
"""

from libs.common.contracts.limits import Limits
from libs.common.store.mongo import Database
from services.auth.accounts.grants import GrantStore
from services.auth.accounts.roles import MenuStore, RoleStore
from services.auth.accounts.tenants import ConsoleClients, TenantStore
from services.auth.accounts.users import UserStore


class Accounts:
    """The stores of one process."""

    def __init__(self, database: Database, defaults: Limits | None = None) -> None:
        self.tenants = TenantStore(database, defaults)
        self.users = UserStore(database)
        self.roles = RoleStore(database)
        self.menus = MenuStore(database)
        self.grants = GrantStore(database)
        self.console_clients = ConsoleClients(database)
