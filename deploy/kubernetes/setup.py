"""The chart's first job: make the secrets once, and hand each part its own as a Secret.

`NAME-setup` keeps all of them and is read by nobody else; `NAME-PART` is mounted by that part at
`/secrets`. An upgrade makes what is missing and changes nothing else.
"""

import argparse
import os
import sys
from pathlib import PurePath

import msgspec

from deploy.kubernetes.cluster import Secrets
from deploy.platform import console
from deploy.platform.errors import LauncherError
from deploy.platform.nats import ServerFiles
from deploy.platform.shares import Places, bootstrap_state, prepare
from deploy.platform.state import FILE_NAME, Addresses, State

ALL = "setup"
BOOTSTRAP = "bootstrap"
TLS = ServerFiles(PurePath("/tls/tls.crt"), PurePath("/tls/tls.key"))
CA_FILE = "/tls/ca.crt"
"""Where the chart mounts them."""


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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m deploy.kubernetes.setup", description=__doc__)
    parser.add_argument("--name", required=True, help="what the Secrets' names begin with")
    parser.add_argument("--mongo", required=True, help="members, host:port separated by commas")
    parser.add_argument("--nats-members", default="", help="hosts of a cluster, by commas")
    parser.add_argument("--redis", required=True, help="host:port")
    parser.add_argument("--url", required=True, help="where the gateway is in the cluster")
    parser.add_argument("--mqtt-url", required=True)
    parser.add_argument("--nats-url", required=True)
    parser.add_argument("--tls", action="store_true", help=f"nats-server shows {TLS.certificate}")
    return parser.parse_args()


def main() -> int:
    """Exit code 1 and one line when it cannot be."""
    given = _arguments()
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
    try:
        hand_out(Secrets(given.name, "setup"), places)
    except (LauncherError, OSError) as error:
        sys.stderr.write(f"setup: {error}\n")
        return 1
    sys.stdout.write("setup: every part has its secrets\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
