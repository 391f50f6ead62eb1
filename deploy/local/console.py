"""What people need to sign in at the console: its client, and the first user.

The client is the launcher's secret, or what the operator's environment says; auth is told of it
by its environment. The user is made by auth, which also makes its password.
"""

import os
import uuid
from collections.abc import Mapping

from deploy.local import keys
from deploy.local.admin import Admin, Refused
from deploy.local.errors import LauncherError
from deploy.local.state import State, User

TENANT = "default"
ADMIN_EMAIL = "THINGWAY_ADMIN_EMAIL"
DEFAULT_EMAIL = "admin@thingway.local"
CLIENT_ID, CLIENT_SECRET = "console_client_id", "console_client_secret"
"""Names of the client's secrets in the state."""
_VARIABLES = {
    CLIENT_ID: "THINGWAY_CONSOLE_CLIENT_ID",
    CLIENT_SECRET: "THINGWAY_CONSOLE_CLIENT_SECRET",
}
_CONFLICT = "409"


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


def admin_email(environ: Mapping[str, str] = os.environ) -> str:
    """The first user's e-mail address, unless a command names another."""
    return environ.get(ADMIN_EMAIL) or DEFAULT_EMAIL


async def create_user(platform: Admin, email: str) -> User:
    """Make the first user, or take over the one that a broken-off start has left.

    Raises `CommandError` when auth refuses the address.
    """
    wanted = {"email": email, "nickname": email.partition("@")[0], "superAdmin": True}
    try:
        made = await platform.call("rpc.auth.create_user", {"tenant": TENANT, **wanted})
    except Refused as error:
        if error.code != _CONFLICT:
            raise
        return await reset_password(platform, TENANT, email)
    return User(made["email"], made["password"])


async def reset_password(platform: Admin, tenant: str, email: str) -> User:
    """Give a user a new password, which ends its tokens; raise `CommandError`."""
    wanted = {"tenant": tenant, "email": email}
    made = await platform.call("rpc.auth.reset_user_password", wanted)
    return User(made["email"], made["password"])
