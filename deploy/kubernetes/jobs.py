"""The jobs of the chart: `python -m deploy.kubernetes.jobs (setup|mongo-setup|bootstrap) …`.

`setup` is the first: it makes the secrets once, and hands each part its own as a Secret.
`NAME-setup` keeps all of them and is read by nobody else; `NAME-PART` is mounted by that part at
`/secrets`. An upgrade makes what is missing and changes nothing else.

`mongo-setup MEMBER …` makes the replica set of its members (`host:port`) and a user per service;
repeatable. MongoDB lets the first user be made over loopback only, and a pod's loopback is its own;
so this logs in as the members do to each other, with the key file (`/keys/key`). `/secrets/env` has
the passwords.

`bootstrap NAME` is the last: the first data, as the launcher makes them. It keeps how far it has
come in the Secret `NAME-bootstrap`, ends with `ready.json` there, and with the simulator's settings
in `NAME-simulator`. `THINGWAY_PUBLIC_*` name the addresses as clients see them,
`THINGWAY_ADMIN_EMAIL` the user.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath

import msgspec

from deploy.docker.jobs import (
    first_data,
    public_addresses,
    ready_file,
    run_job,
    run_mongo_setup,
    simulator_file,
)
from deploy.kubernetes.cluster import Secrets
from deploy.platform import console, ready
from deploy.platform.errors import LauncherError
from deploy.platform.mongo_server import set_up_members
from deploy.platform.nats import ServerFiles
from deploy.platform.shares import Places, bootstrap_state, prepare
from deploy.platform.state import FILE_NAME, Addresses, State

ALL = "setup"
BOOTSTRAP = "bootstrap"
TLS = ServerFiles(PurePath("/tls/tls.crt"), PurePath("/tls/tls.key"))
CA_FILE = "/tls/ca.crt"
"""Where the chart mounts them."""
MONGO_KEY = Path("/keys/key")


def read_state(secrets: Secrets, part: str) -> State:
    """The state that a part keeps; an empty one when there is none yet.

    Raises `LauncherError` for one that cannot be read: new secrets would lock everybody out.
    """
    content = secrets.read(part).get(FILE_NAME)
    try:
        return State() if content is None else msgspec.json.decode(content, type=State)
    except msgspec.MsgspecError as error:
        raise LauncherError(f"cannot read {FILE_NAME} of the Secret {part}: {error}") from error


def write_state(secrets: Secrets, part: str, state: State) -> None:
    """Keep the state of a part."""
    secrets.write(part, {FILE_NAME: msgspec.json.encode(state)})


def hand_out(secrets: Secrets, places: Places) -> None:
    """Make, keep, hand out. What is kept comes first: nobody has a secret that is kept nowhere."""
    state = read_state(secrets, ALL)
    console.adopt_client(state, os.environ)
    shares = prepare(state, places)
    begun = bootstrap_state(state, read_state(secrets, BOOTSTRAP), places)
    write_state(secrets, ALL, state)
    write_state(secrets, BOOTSTRAP, begun)
    for part in dict.fromkeys(share.part for share in shares):
        files = {one.name: one.content.encode() for one in shares if one.part == part}
        secrets.write(part, files)


def setup(arguments: Sequence[str]) -> int:
    """Make the secrets, keep them, hand them out."""
    parser = argparse.ArgumentParser(prog="python -m deploy.kubernetes.jobs setup")
    parser.add_argument("--name", required=True, help="what the Secrets' names begin with")
    parser.add_argument("--mongo", required=True, help="members, host:port separated by commas")
    parser.add_argument("--nats-members", default="", help="hosts of a cluster, by commas")
    parser.add_argument("--redis", required=True, help="host:port")
    parser.add_argument("--url", required=True, help="where the gateway is in the cluster")
    parser.add_argument("--mqtt-url", required=True)
    parser.add_argument("--nats-url", required=True)
    parser.add_argument("--tls", action="store_true", help=f"nats-server shows {TLS.certificate}")
    given = parser.parse_args(arguments)
    places = Places(
        mongo=given.mongo,
        mongo_direct=False,
        redis=given.redis,
        addresses=Addresses(
            given.url, given.mqtt_url, given.nats_url, ca_file=CA_FILE if given.tls else ""
        ),
        tls=TLS if given.tls else None,
        nats_members=tuple(filter(None, given.nats_members.split(","))),
        nats_server_name="$NATS_SERVER_NAME",
    )
    done = "every part has its secrets"
    return run_job("setup", lambda: hand_out(Secrets(given.name, "setup"), places), done)


def mongo_setup(members: Sequence[str]) -> int:
    """Set MongoDB up."""
    key, password = MONGO_KEY.read_text(), os.environ["MONGO_ADMIN"]
    return run_mongo_setup(lambda users: set_up_members(members, key, password, users))


def _make_first_data(name: str) -> None:
    secrets = Secrets(name, "bootstrap")
    state = read_state(secrets, BOOTSTRAP)
    asyncio.run(first_data(state, lambda: write_state(secrets, BOOTSTRAP, state)))
    public = public_addresses(os.environ)
    secrets.write("credentials", {ready.FILE_NAME: ready_file(state, public)})
    secrets.write("simulator", {"env": simulator_file(state)})


def bootstrap(arguments: Sequence[str]) -> int:
    """Wait for the platform and bring it to its first data; repeatable."""
    [name] = arguments
    done = "Thingway is ready"
    return run_job("bootstrap", lambda: _make_first_data(name), done, "the platform")


JOBS = {"setup": setup, "mongo-setup": mongo_setup, "bootstrap": bootstrap}

if __name__ == "__main__":
    sys.exit(JOBS[sys.argv[1]](sys.argv[2:]))
