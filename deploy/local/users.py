"""`thingway user`: for people who are locked out, by request to auth as administrator."""

import json
from pathlib import Path

from deploy.local import admin, console, lock, ready
from deploy.local import state as states
from deploy.local.state import User


async def reset_password(directory: Path, email: str, tenant: str, *, as_json: bool) -> None:
    """Give a user a new password and print it; the old one and every token end at once."""
    state, addresses = states.load_addressed(directory)
    async with admin.connect(addresses.nats_url, state.secrets["nats.admin"]) as platform:
        user = await console.reset_password(platform, tenant, email)
    if tenant == console.TENANT:
        _remember(directory, user)
    if as_json:
        print(json.dumps({"email": user.email, "password": user.password}, indent=2))
        return
    print(f"user      {user.email}")
    print(f"password  {user.password}")
    print("The password is shown this once.")


def _remember(directory: Path, user: User) -> None:
    """Keep the launcher's files true when the first user's password changes."""
    state = states.load(directory)
    if state.user is None or state.user.email != user.email:
        return
    state.user = user
    states.save(directory, state)
    running = ready.read(directory)
    if running is not None and lock.is_held(directory):
        ready.write(directory, running.pids)
