"""The console's client, and its first user.

The client is a secret of the launcher or comes from the operator's environment; `auth` reads it
from its environment. `auth` creates the user and its password.
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
_CLIENT_VARIABLES = {
    CLIENT_ID: "THINGWAY_CONSOLE_CLIENT_ID",
    CLIENT_SECRET: "THINGWAY_CONSOLE_CLIENT_SECRET",
}


def adopt_client(state: State, environ: Mapping[str, str]) -> None:
    """Use the client in the environment; raise `LauncherError` if only half is set."""
    values = {name: environ.get(variable, "") for name, variable in _CLIENT_VARIABLES.items()}
    if all(values.values()):
        state.secrets |= values
    elif any(values.values()):
        raise LauncherError(f"{' and '.join(_CLIENT_VARIABLES.values())} must be set together")


def client(state: State) -> tuple[str, str]:
    """Return id and secret of the console client, created on first use."""
    identity = state.secret(CLIENT_ID, lambda: str(uuid.uuid4()))
    return identity, state.secret(CLIENT_SECRET, keys.new_password)


def admin_email() -> str:
    """Return the default email address of the first user."""
    return os.environ.get(ADMIN_EMAIL) or DEFAULT_EMAIL


async def create_user(platform: RpcClient, email: str) -> User:
    """Create the first user, or adopt the one of an interrupted start.

    Raises the errors with which `auth` rejects the address.
    """
    request = CreateUser(email, email.partition("@")[0], TENANT, super_admin=True)
    try:
        made = await platform.call("rpc.auth.create_user", request, UserPassword)
    except Conflict:
        return await reset_password(platform, TENANT, email)
    return User(made.email, made.password)


async def reset_password(platform: RpcClient, tenant: str, email: str) -> User:
    """Set a new random password of a user, which invalidates its tokens."""
    request = UserRefByEmail(email, tenant)
    made = await platform.call("rpc.auth.reset_user_password", request, UserPassword)
    return User(made.email, made.password)
