"""The console's client, and its first user.

The client is a secret of the launcher or comes from the operator's environment; `auth` reads it
from its environment. `auth` creates the user and its password.
"""

import os
import uuid
from collections.abc import Mapping

from deploy.platform import keys
from deploy.platform.errors import LauncherError
from deploy.platform.state import FirstUser, State
from libs.common.bus import RpcClient
from libs.common.contracts.auth import CreateUser, UserPassword, UserRefByEmail
from libs.common.errors import Conflict

DEFAULT_TENANT = "default"
ADMIN_EMAIL_VARIABLE = "THINGWAY_ADMIN_EMAIL"
DEFAULT_EMAIL = "admin@thingway.local"
CLIENT_ID, CLIENT_SECRET = "console_client_id", "console_client_secret"
"""Names of the client's secrets in the state."""
_VARIABLE_BY_CLIENT_FIELD = {
    CLIENT_ID: "THINGWAY_CONSOLE_CLIENT_ID",
    CLIENT_SECRET: "THINGWAY_CONSOLE_CLIENT_SECRET",
}


def adopt_console_client(state: State, environ: Mapping[str, str]) -> None:
    """Copy the console client of the environment to `state`, if it is set there.

    Raises `LauncherError` if only its id or only its secret is set.
    """
    values = {
        name: environ.get(variable, "") for name, variable in _VARIABLE_BY_CLIENT_FIELD.items()
    }
    if all(values.values()):
        state.secrets |= values
    elif any(values.values()):
        raise LauncherError(
            f"{' and '.join(_VARIABLE_BY_CLIENT_FIELD.values())} must be set together"
        )


def console_client(state: State) -> tuple[str, str]:
    """Return id and secret of the console client, created on first use."""
    identity = state.get_or_create_secret(CLIENT_ID, lambda: str(uuid.uuid4()))
    return identity, state.get_or_create_secret(CLIENT_SECRET, keys.new_password)


def default_admin_email() -> str:
    """Return the first user's email address in the environment, or the default."""
    return os.environ.get(ADMIN_EMAIL_VARIABLE) or DEFAULT_EMAIL


async def create_first_user(platform: RpcClient, email: str) -> FirstUser:
    """Create the first user, or reset its password if it exists already.

    Raises the errors with which `auth` rejects the address.
    """
    request = CreateUser(email, email.partition("@")[0], DEFAULT_TENANT, super_admin=True)
    try:
        made = await platform.call("rpc.auth.create_user", request, UserPassword)
    except Conflict:
        return await reset_password(platform, DEFAULT_TENANT, email)
    return FirstUser(made.email, made.password)


async def reset_password(platform: RpcClient, tenant: str, email: str) -> FirstUser:
    """Set a new random password of a user, which invalidates its tokens."""
    request = UserRefByEmail(email, tenant)
    made = await platform.call("rpc.auth.reset_user_password", request, UserPassword)
    return FirstUser(made.email, made.password)
