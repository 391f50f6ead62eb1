"""Compose's job for MongoDB: the replica set, the administrator, a user per service.

It runs in the network of the `mongo` container, because MongoDB lets the first
administrator be made over loopback only. It may run again at every start.
"""

import asyncio
import os
import sys
from collections.abc import Coroutine

from deploy.platform import mongo_server, services
from deploy.platform.mongo_server import DatabaseUser
from deploy.platform.ports import LOOPBACK
from deploy.platform.shares import MONGO_PORT
from deploy.platform.state import State

START_SECONDS = 180.0
_PREFIX = "MONGO_"


def users(environ: dict[str, str]) -> list[DatabaseUser]:
    """The users, with the passwords that `setup` made."""
    given = [name for name in environ if name.startswith(_PREFIX)]
    state = State(secrets={f"mongo.{one.removeprefix(_PREFIX)}": environ[one] for one in given})
    return [*services.database_users(state), services.backup_user(state)]


def finished(work: Coroutine[None, None, None]) -> int:
    """The exit code when MongoDB is being set up by `work`: 1 when it is not there in time."""
    try:
        asyncio.run(asyncio.wait_for(work, START_SECONDS))
    except TimeoutError:
        sys.stderr.write(f"mongo-setup: MongoDB was not ready within {START_SECONDS:.0f} s\n")
        return 1
    sys.stdout.write("mongo-setup: the replica set and its users are there\n")
    return 0


def main() -> int:
    """Set MongoDB up."""
    environ = dict(os.environ)
    member = f"{LOOPBACK}:{MONGO_PORT}"
    return finished(mongo_server.set_up([member], environ["MONGO_ADMIN"], users(environ)))


if __name__ == "__main__":
    sys.exit(main())
