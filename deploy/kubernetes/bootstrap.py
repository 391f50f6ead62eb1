"""The chart's last job: the first data, as the launcher makes them.

It keeps how far it has come in the Secret `NAME-bootstrap`, ends with `ready.json` there, and with
the simulator's settings in `NAME-simulator`. Its one argument is NAME; `THINGWAY_PUBLIC_*` name the
addresses as clients see them, `THINGWAY_ADMIN_EMAIL` the user.
"""

import asyncio
import os
import sys

from deploy.docker.bootstrap import (
    START_SECONDS,
    first_data,
    public_addresses,
    ready_file,
    simulator_file,
)
from deploy.kubernetes.cluster import Secrets
from deploy.kubernetes.setup import BOOTSTRAP, read_state, write_state
from deploy.platform import ready
from deploy.platform.errors import LauncherError
from libs.common.errors import ThingwayError


async def run(secrets: Secrets) -> None:
    """Wait for the platform and bring it to its first data; repeatable."""
    state = read_state(secrets, BOOTSTRAP)
    await first_data(state, lambda: write_state(secrets, BOOTSTRAP, state))
    public = public_addresses(dict(os.environ))
    secrets.write("credentials", {ready.FILE_NAME: ready_file(state, public)})
    secrets.write("simulator", {"env": simulator_file(state)})


def main() -> int:
    """Exit code 1 and one line when it cannot be."""
    [name] = sys.argv[1:]
    try:
        asyncio.run(run(Secrets(name, "bootstrap")))
    except (LauncherError, ThingwayError, OSError) as error:
        sys.stderr.write(f"bootstrap: {error}\n")
        return 1
    except TimeoutError:
        sys.stderr.write(f"bootstrap: the platform was not ready within {START_SECONDS:.0f} s\n")
        return 1
    sys.stdout.write("bootstrap: Thingway is ready\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
