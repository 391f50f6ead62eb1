"""What people need to sign in at the console: its client, and the first user.

The client is the launcher's secret, or what the operator's environment says; auth is told of it
by its environment. The user is made by auth, which also makes its password.
"""

import os
import uuid
from collections.abc import Mapping

from deploy.platform import keys
from deploy.platform.errors import LauncherError
from deploy.platform.state import State, User
from libs.common.bus import RpcClient
from libs.common.contracts.auth import CreateUser, UserPassword, UserRefByEmail
from libs.common.errors import Conflict

TENANT = "default"
ADMIN_EMAIL = "THINGWAY_ADMIN_EMAIL"
DEFAULT_EMAIL = "admin@thingway.local"
CLIENT_ID, CLIENT_SECRET = "console_client_id", "console_client_secret"
"""Names of the client's secrets in the state."""
_VARIABLES = {
    CLIENT_ID: "THINGWAY_CONSOLE_CLIENT_ID",
    CLIENT_SECRET: "THINGWAY_CONSOLE_CLIENT_SECRET",
}


def adopt_client(state: State, environ: Mapping[str, str]) -> None:
    """Take over the client that the environment names; raise `LauncherError` for half of one."""
    given = {name: environ.get(variable, "") for name, variable in _VARIABLES.items()}
    if all(given.values()):
        state.secrets |= given
    elif any(given.values()):
        raise LauncherError(f"{' and '.join(_VARIABLES.values())} belong together")


def client(state: State) -> tuple[str, str]:
    """Id and secret of the console client, made when they are first asked for."""
    made = (CLIENT_ID, lambda: str(uuid.uuid4())), (CLIENT_SECRET, keys.new_password)
    identity, secret = (state.secret(name, make) for name, make in made)
    return identity, secret


def admin_email() -> str:
    """The first user's e-mail address, unless a command names another."""
    return os.environ.get(ADMIN_EMAIL) or DEFAULT_EMAIL


async def create_user(platform: RpcClient, email: str) -> User:
    """Make the first user, or take over the one that a broken-off start has left.

    Raises what auth refuses the address with.
    """
    wanted = CreateUser(email, email.partition("@")[0], TENANT, super_admin=True)
    try:
        made = await platform.call("rpc.auth.create_user", wanted, UserPassword)
    except Conflict:
        return await reset_password(platform, TENANT, email)
    return User(made.email, made.password)


async def reset_password(platform: RpcClient, tenant: str, email: str) -> User:
    """Give a user a new password, which ends its tokens."""
    wanted = UserRefByEmail(email, tenant)
    made = await platform.call("rpc.auth.reset_user_password", wanted, UserPassword)
    return User(made.email, made.password)
