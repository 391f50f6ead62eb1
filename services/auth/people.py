"""The wiring of what concerns people: signing in, one's own account, and users."""

from dataclasses import dataclass
from typing import Any

from libs.common.bus import Bus, RpcClient, RpcServer
from libs.common.identity.tokens import TokenWriter
from libs.common.limits import TokenBuckets
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Mongo
from libs.common.store.redis import Redis
from services.auth.audit.refused import RefusedSessions
from services.auth.changes import Changes
from services.auth.menus.store import MenuStore
from services.auth.passwords.hashing import PasswordHashes
from services.auth.settings import AuthSettings
from services.auth.sign_in.clients import ConsoleClients
from services.auth.sign_in.routes import sign_in
from services.auth.sign_in.service import SignIn
from services.auth.sign_in.throttle import Throttle
from services.auth.users.account import AccountService
from services.auth.users.account_routes import ROUTER as ACCOUNT_ROUTES
from services.auth.users.directory import UserDirectory
from services.auth.users.messages import DeviceNames, offer_users
from services.auth.users.permissions import Permissions
from services.auth.users.routes import ROUTER as USER_ROUTES
from services.auth.users.service import UserService
from services.auth.users.store import UserStore
from services.auth.users.views import HeldRoles

ID_BLOCK = 10
"""Ids of users are taken rarely; a restart wastes at most this many."""
ROUTES = (sign_in, ACCOUNT_ROUTES, USER_ROUTES)
OPEN_PATHS = frozenset({"/oauth2/token", "/user/register", "/user/status"})


@dataclass(frozen=True)
class People:
    """The services that the routes ask for, and the threads that hash passwords."""

    sign_in: SignIn
    accounts: AccountService
    users: UserService
    directory: UserDirectory
    hashes: PasswordHashes

    @property
    def dependencies(self) -> dict[str, Any]:
        """Collaborators by the name that handlers ask for them."""
        return {
            "sign_in": self.sign_in,
            "accounts": self.accounts,
            "people": self.users,
            "directory": self.directory,
        }

    def offer(self, rpc: RpcServer) -> None:
        """Offer what the operator asks."""
        offer_users(rpc, self.accounts)


def wire_people(
    settings: AuthSettings,
    mongo: Mongo,
    redis: Redis,
    bus: Bus,
    changes: Changes,
    refused: RefusedSessions,
) -> People:
    """Put it together on clients that are connected."""
    database = mongo.database
    store, hashes = UserStore(database), PasswordHashes()
    throttle = Throttle(TokenBuckets(redis, "auth"))
    users = UserService(changes, store, hashes, IdAllocator(database, "users", ID_BLOCK).take)
    permissions = Permissions(database, DeviceNames(RpcClient(bus)))
    return People(
        sign_in=SignIn(
            ConsoleClients(database, settings.console_client_id, settings.console_client_secret),
            store,
            hashes,
            throttle,
            changes,
            TokenWriter(
                redis,
                access_life=settings.user_access_token_life,
                refresh_life=settings.user_refresh_token_life,
            ),
            refused.record,
            access_life=settings.user_access_token_life,
        ),
        accounts=AccountService(changes, store, hashes, users, throttle),
        users=users,
        directory=UserDirectory(store, HeldRoles(database), MenuStore(database), permissions),
        hashes=hashes,
    )
