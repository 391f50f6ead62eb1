"""The jobs of docker-compose.yml: `python -m deploy.docker.jobs (setup|mongo-setup|bootstrap)`.

`setup` is the first: it makes the secrets once, and hands each container its own. `/state` (a
volume that only this job sees) keeps all of them; `/out/NAME` is the volume that container NAME
finds at `/secrets`. Later starts make what is missing and change nothing else.

`mongo-setup` makes the replica set, the administrator and a user per service. It runs in the
network of the `mongo` container, because MongoDB lets the first administrator be made over loopback
only. It may run again at every start.

`bootstrap` is the last: it makes the first application, user, product and device, as the launcher
does. It writes `/secrets/ready.json` (mode 0600) with the addresses as the host sees them, and
prints where it is. `THINGWAY_PUBLIC_*` name these addresses, `THINGWAY_ADMIN_EMAIL` the user.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path, PurePath

from deploy.platform import console, mongo_server, ready, services
from deploy.platform import state as states
from deploy.platform.bootstrap import bootstrap
from deploy.platform.errors import LauncherError
from deploy.platform.files import write_private
from deploy.platform.mongo_server import DatabaseUser
from deploy.platform.nats import ServerFiles
from deploy.platform.openapi import until_serving
from deploy.platform.ports import LOOPBACK
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
from libs.common.errors import ThingwayError

STATE = Path("/state")
OUT = Path("/out")
SECRETS = Path("/secrets")
SIMULATOR = Path("/simulator")
START_SECONDS = 180.0

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
PUBLIC = {
    "THINGWAY_PUBLIC_URL": "http://127.0.0.1:8080",
    "THINGWAY_PUBLIC_MQTT_URL": "mqtt://127.0.0.1:1883",
    "THINGWAY_PUBLIC_NATS_URL": "nats://127.0.0.1:4222",
}
_MONGO_PREFIX = "MONGO_"


def run_job(name: str, job: Callable[[], object], done: str, waits_for: str = "") -> int:
    """Run a job; return exit code 1, with one line on stderr, when it fails.

    `waits_for` is what was not ready when the job raises `TimeoutError`.
    """
    try:
        job()
    except TimeoutError:
        sys.stderr.write(f"{name}: {waits_for} was not ready within {START_SECONDS:.0f} s\n")
        return 1
    except (LauncherError, ThingwayError, OSError) as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1
    sys.stdout.write(f"{name}: {done}\n")
    return 0


def hand_out(out: Path, share: Share) -> None:
    """Write a share into its volume, readable by its user only; keep files that exist."""
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


def _make_secrets() -> None:
    state = states.load(STATE)
    console.adopt_client(state, os.environ)
    places = ENCRYPTED if os.environ.get(TLS) else PLAIN
    shares = prepare(state, places)
    states.save(STATE, state)
    for share in shares:
        hand_out(OUT, share)
    _hand_out_bootstrap_state(OUT, state, places)


def setup() -> int:
    """Make the secrets, keep them, hand them out."""
    return run_job("setup", _make_secrets, "every container has its secrets")


def database_users(environ: Mapping[str, str]) -> list[DatabaseUser]:
    """The users of MongoDB, with the passwords that `setup` made."""
    given = [name for name in environ if name.startswith(_MONGO_PREFIX)]
    secrets = {f"mongo.{one.removeprefix(_MONGO_PREFIX)}": environ[one] for one in given}
    state = State(secrets=secrets)
    return [*services.database_users(state), services.backup_user(state)]


def run_mongo_setup(set_up: Callable[[list[DatabaseUser]], Coroutine[None, None, None]]) -> int:
    """Set MongoDB up with its users; the exit code is 1 when it is not there in time."""
    work = set_up(database_users(os.environ))
    done = "the replica set and its users are there"
    return run_job(
        "mongo-setup", lambda: asyncio.run(asyncio.wait_for(work, START_SECONDS)), done, "MongoDB"
    )


def mongo_setup() -> int:
    """Set MongoDB up over loopback."""
    member, password = f"{LOOPBACK}:{MONGO_PORT}", os.environ["MONGO_ADMIN"]
    return run_mongo_setup(lambda users: mongo_server.set_up([member], password, users))


def public_addresses(environ: Mapping[str, str]) -> Addresses:
    """Where clients outside the containers find the platform."""
    http, mqtt, nats = (environ.get(name) or default for name, default in PUBLIC.items())
    return Addresses(http, mqtt, nats)


def ready_file(state: State, public: Addresses) -> bytes:
    """The content of `ready.json`; the platform's processes are containers, so no pids."""
    content = ready.content_of(state, public, pids={})
    if content is None:
        raise AssertionError("the bootstrap ends with an application, a user and a device")
    return content


def simulator_file(state: State) -> bytes:
    """The settings of the simulator (profile `demo`)."""
    device, addresses = state.device, state.addresses
    if device is None or addresses is None:
        raise AssertionError("the bootstrap ends with a device")
    return (
        f"THINGWAY_MQTT_URL={addresses.mqtt_url}\n"
        f"THINGWAY_DEVICE_SN={device.sn}\nTHINGWAY_DEVICE_KEY={device.key}\n"
    ).encode()


async def first_data(state: State, save: Callable[[], None]) -> None:
    """Wait for the platform and bring it to its first data; repeatable.

    Raises `TimeoutError` when it does not serve in time.
    """
    addresses = state.addresses
    if addresses is None:
        raise LauncherError("no addresses: the job `setup` has not run")
    async with asyncio.timeout(START_SECONDS):
        await until_serving(addresses.base_url, addresses.ca_file)
    await bootstrap(state, addresses, console.admin_email(), save)


def _make_first_data() -> None:
    state = states.load(SECRETS)
    asyncio.run(first_data(state, lambda: states.save(SECRETS, state)))
    write_private(SECRETS / ready.FILE_NAME, ready_file(state, public_addresses(os.environ)))
    write_private(SIMULATOR / "env", simulator_file(state))


def make_first_data() -> int:
    """Make the first data, and write what others need to use them."""
    where = "docker-compose run --rm --no-deps credentials"
    done = f"Thingway is ready; credentials: {where}"
    return run_job("bootstrap", _make_first_data, done, "the platform")


JOBS = {"setup": setup, "mongo-setup": mongo_setup, "bootstrap": make_first_data}

if __name__ == "__main__":
    sys.exit(JOBS[sys.argv[1]]())
