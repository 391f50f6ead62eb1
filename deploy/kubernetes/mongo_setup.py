"""The chart's job for MongoDB: the replica set of its members, a user per service; repeatable.

Its arguments are the members, `host:port`. MongoDB lets the first user be made over loopback only,
and a pod's loopback is its own; so this logs in as the members do to each other, with the key file
(`/keys/key`). `/secrets/env` has the passwords.
"""

import os
import sys
from pathlib import Path

from deploy.docker.mongo_setup import finished, users
from deploy.platform.mongo_server import set_up_members

KEY = Path("/keys/key")


def main() -> int:
    """Set MongoDB up."""
    environ, key = dict(os.environ), KEY.read_text()
    return finished(set_up_members(sys.argv[1:], key, environ["MONGO_ADMIN"], users(environ)))


if __name__ == "__main__":
    sys.exit(main())
