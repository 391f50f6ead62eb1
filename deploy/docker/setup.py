"""Compose's first job: make the secrets once, and hand each container its own.

`/state` (a volume that only this job sees) keeps all of them; `/out/NAME` is the volume
that container NAME finds at `/secrets`. Later starts make what is missing and change
nothing else.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path, PurePath

from deploy.platform import console
from deploy.platform import state as states
from deploy.platform.errors import LauncherError
from deploy.platform.files import write_private
from deploy.platform.nats import ServerFiles
from deploy.platform.shares import (
    MONGO_PORT,
    MQTT_PORT,
    NATS_PORT,
    REDIS_PORT,
    SERVICE_PORT,
    Places,
    Share,
    bootstrap_state,
    prepare,
)
from deploy.platform.state import Addresses, State

STATE = Path("/state")
OUT = Path("/out")

OURS = 10001
"""The user of our image."""
OWNERS = {"mongo": 999, "redis": 999, "nats": 0}
"""The users that the official images of the servers run as."""
PLAIN = Places(
    mongo=f"mongo:{MONGO_PORT}",
    mongo_direct=True,
    redis=f"redis:{REDIS_PORT}",
    addresses=Addresses(
        f"http://gateway:{SERVICE_PORT}", f"mqtt://nats:{MQTT_PORT}", f"nats://nats:{NATS_PORT}"
    ),
)
"""The names of the containers in docker-compose.yml."""
ENCRYPTED = replace(
    PLAIN,
    addresses=Addresses(
        base_url=f"https://gateway:{SERVICE_PORT}",
        mqtt_url=f"mqtts://nats:{MQTT_PORT}",
        nats_url=f"tls://nats:{NATS_PORT}",
        ca_file="/tls/ca.pem",
    ),
    tls=ServerFiles(PurePath("/tls/server.pem"), PurePath("/tls/server.key")),
)
"""With docker-compose.tls.yml."""
TLS = "THINGWAY_TLS"
"""Set by docker-compose.tls.yml."""


def hand_out(out: Path, share: Share) -> None:
    """Write a share into its volume, readable by its user only; what is there is left alone."""
    directory, owner = out / share.part, OWNERS.get(share.part, OURS)
    if not directory.is_dir():
        raise LauncherError(f"no volume is mounted at {directory}: see docker-compose.yml")
    path = directory / share.name
    if path.exists() and path.read_text() == share.content and path.stat().st_uid == owner:
        return
    write_private(path, share.content.encode())
    os.chown(path, owner, owner)


def _hand_out_bootstrap_state(out: Path, state: State, places: Places) -> None:
    """Give the bootstrap job its state, and two volumes that it may write to."""
    directory = out / "bootstrap"
    for volume in (directory, out / "simulator"):
        os.chown(volume, OURS, OURS)
    states.save(directory, bootstrap_state(state, states.load(directory), places))
    os.chown(directory / states.FILE_NAME, OURS, OURS)


def main() -> int:
    """Make, keep, hand out."""
    try:
        state = states.load(STATE)
        console.adopt_client(state, os.environ)
        places = ENCRYPTED if os.environ.get(TLS) else PLAIN
        shares = prepare(state, places)
        states.save(STATE, state)
        for share in shares:
            hand_out(OUT, share)
        _hand_out_bootstrap_state(OUT, state, places)
    except (LauncherError, OSError) as error:
        sys.stderr.write(f"setup: {error}\n")
        return 1
    sys.stdout.write("setup: every container has its secrets\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
