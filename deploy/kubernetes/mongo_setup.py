"""The chart's job for MongoDB: the replica set of its members, a user per service; repeatable.

Its arguments are the members, `host:port`. MongoDB lets the first user be made over loopback only,
and a pod's loopback is its own; so this logs in as the members do to each other, with the key file
(`/keys/key`). `/secrets/env` has the passwords.
"""

import asyncio
import os
import sys
from pathlib import Path

from deploy.docker.mongo_setup import START_SECONDS, users
from deploy.platform.mongo_server import set_up_members

KEY = Path("/keys/key")


async def _run(members: list[str], key: str) -> None:
    environ = dict(os.environ)
    async with asyncio.timeout(START_SECONDS):
        await set_up_members(members, key, environ["MONGO_ADMIN"], users(environ))


def main() -> int:
    """Set MongoDB up; exit code 1 when it is not there in time."""
    try:
        asyncio.run(_run(sys.argv[1:], KEY.read_text()))
    except TimeoutError:
        sys.stderr.write(f"mongo-setup: MongoDB was not ready within {START_SECONDS:.0f} s\n")
        return 1
    sys.stdout.write("mongo-setup: the replica set and its users are there\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
