"""The jobs of docker-compose.yml: `python -m deploy.docker.jobs JOB`.

`setup` runs first. It creates the secrets once and gives each container its own. `/state`, a volume
of this job only, stores all of them; `/out/NAME` is the volume that container NAME mounts at
`/secrets`. Later runs only add missing secrets.

`mongo-setup` creates the replica set, the administrator and a user per service. It shares the
network of the `mongo` container, because MongoDB allows the creation of the first administrator
over loopback only. It can be repeated.

`bootstrap` runs last. It creates the first application, user, product and device, as the launcher
does, writes `/secrets/ready.json` (mode 0600) with the public addresses, and prints how to read it.
`THINGWAY_PUBLIC_*` set the addresses, `THINGWAY_ADMIN_EMAIL` the user.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath

from deploy.platform import console, mongo_server, ready, services
from deploy.platform import state as states
from deploy.platform.bootstrap import bootstrap
from deploy.platform.errors import LauncherError
from deploy.platform.files import write_private
from deploy.platform.mongo_server import DatabaseUser
from deploy.platform.nats import TlsFiles
from deploy.platform.openapi import wait_until_ready
from deploy.platform.ports import LOOPBACK
from deploy.platform.shares import (
    MONGO_PORT,
    MQTT_PORT,
    NATS_PORT,
    REDIS_PORT,
    SERVICE_PORT,
    PartAddresses,
    SecretFile,
    build_bootstrap_state,
    create_secret_files,
)
from deploy.platform.state import Addresses, State
from libs.common.errors import ThingwayError

STATE_DIRECTORY = Path("/state")
PART_VOLUMES_DIRECTORY = Path("/out")
DATA_DIRECTORY = Path("/data")
"""Mount point of MongoDB's and Redis's data volumes in the job `setup`."""
SECRETS_DIRECTORY = Path("/secrets")
SIMULATOR_DIRECTORY = Path("/simulator")
MAX_PLATFORM_START_SECONDS = 180.0

IMAGE_USER_ID = 10001
"""User id of the Thingway image."""
USER_ID_BY_SERVER = {"mongo": 999, "redis": 999, "nats": 0}
"""User id of each server, by part, as in its official image."""
PLAIN_ADDRESSES = PartAddresses(
    mongo=f"mongo:{MONGO_PORT}",
    mongo_direct=True,
    redis=f"redis:{REDIS_PORT}",
    addresses=Addresses(
        f"http://gateway:{SERVICE_PORT}", f"mqtt://nats:{MQTT_PORT}", f"nats://nats:{NATS_PORT}"
    ),
)
"""Addresses of the parts in docker-compose.yml."""
TLS_ADDRESSES = replace(
    PLAIN_ADDRESSES,
    addresses=Addresses(
        base_url=f"https://gateway:{SERVICE_PORT}",
        mqtt_url=f"mqtts://nats:{MQTT_PORT}",
        nats_url=f"tls://nats:{NATS_PORT}",
        ca_file="/tls/ca.pem",
    ),
    tls=TlsFiles(PurePath("/tls/server.pem"), PurePath("/tls/server.key")),
)
"""Addresses of the parts with docker-compose.tls.yml."""
TLS_VARIABLE = "THINGWAY_TLS"
"""Environment variable that docker-compose.tls.yml sets."""
DEFAULT_PUBLIC_URL_BY_VARIABLE = {
    "THINGWAY_PUBLIC_URL": "http://127.0.0.1:8080",
    "THINGWAY_PUBLIC_MQTT_URL": "mqtt://127.0.0.1:1883",
    "THINGWAY_PUBLIC_NATS_URL": "nats://127.0.0.1:4222",
}
_MONGO_PASSWORD_PREFIX = "MONGO_"  # noqa: S105 - the start of names


def run_job(name: str, job: Callable[[], object], done: str, waits_for: str = "") -> int:
    """Run a job; on failure, print one line to stderr and return exit code 1.

    `waits_for` names the missing services if the job raises `TimeoutError`.
    """
    try:
        job()
    except TimeoutError:
        sys.stderr.write(
            f"{name}: {waits_for} was not ready within {MAX_PLATFORM_START_SECONDS:.0f} s\n"
        )
        return 1
    except (LauncherError, ThingwayError, OSError) as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 1
    sys.stdout.write(f"{name}: {done}\n")
    return 0


def write_secret_file(out: Path, share: SecretFile) -> None:
    """Write a part's secret file, owned by its user; skip an equal file."""
    directory, owner = out / share.part, USER_ID_BY_SERVER.get(share.part, IMAGE_USER_ID)
    if not directory.is_dir():
        raise LauncherError(f"no volume is mounted at {directory}: see docker-compose.yml")
    path = directory / share.name
    if path.exists() and path.read_text() == share.content and path.stat().st_uid == owner:
        return
    write_private(path, share.content.encode())
    os.chown(path, owner, owner)


def change_volume_owner(volume: Path, owner: int) -> None:
    """Make user id `owner` the owner of all files in a server's data volume.

    Earlier versions ran the server as another user. A server may still run and delete files.
    """
    for _, _, files, directory in os.fwalk(volume):  # no link leads out of the volume
        for name in (".", *files):
            with suppress(FileNotFoundError):
                if os.stat(name, dir_fd=directory, follow_symlinks=False).st_uid != owner:
                    os.chown(name, owner, owner, dir_fd=directory, follow_symlinks=False)


def _write_bootstrap_state(out: Path, state: State, parts: PartAddresses) -> None:
    """Write the state for the bootstrap job, and make its two volumes writable for it."""
    directory = out / "bootstrap"
    for volume in (directory, out / "simulator"):
        os.chown(volume, IMAGE_USER_ID, IMAGE_USER_ID)
    states.save(directory, build_bootstrap_state(state, states.load(directory), parts))
    os.chown(directory / states.FILE_NAME, IMAGE_USER_ID, IMAGE_USER_ID)


def _create_secrets() -> None:
    state = states.load(STATE_DIRECTORY)
    console.adopt_console_client(state, os.environ)
    parts = TLS_ADDRESSES if os.environ.get(TLS_VARIABLE) else PLAIN_ADDRESSES
    shares = create_secret_files(state, parts)
    states.save(STATE_DIRECTORY, state)
    for share in shares:
        write_secret_file(PART_VOLUMES_DIRECTORY, share)
    for name in ("mongo", "redis"):
        change_volume_owner(DATA_DIRECTORY / name, USER_ID_BY_SERVER[name])
    _write_bootstrap_state(PART_VOLUMES_DIRECTORY, state, parts)


def setup() -> int:
    """Create the secrets, save them, and give each container its own."""
    return run_job("setup", _create_secrets, "every container has its secrets")


def read_database_users(environ: Mapping[str, str]) -> list[DatabaseUser]:
    """Return MongoDB's users with their passwords in the environment (`MONGO_{user}`)."""
    variables = [name for name in environ if name.startswith(_MONGO_PASSWORD_PREFIX)]
    secrets = {
        f"mongo.{name.removeprefix(_MONGO_PASSWORD_PREFIX)}": environ[name] for name in variables
    }
    state = State(secrets=secrets)
    users = [*services.database_users(state), services.backup_user(state)]
    if f"{_MONGO_PASSWORD_PREFIX}exporter" in environ:
        users.append(services.exporter_user(state))
    return users


def run_mongo_setup(set_up: Callable[[list[DatabaseUser]], Coroutine[None, None, None]]) -> int:
    """Call `set_up` with MongoDB's users; return the exit code, 1 on failure."""
    setup_users = set_up(read_database_users(os.environ))
    done = "the replica set and its users exist"
    return run_job(
        "mongo-setup",
        lambda: asyncio.run(asyncio.wait_for(setup_users, MAX_PLATFORM_START_SECONDS)),
        done,
        "MongoDB",
    )


def mongo_setup() -> int:
    """Create the replica set and its users over loopback; return the exit code."""
    member, password = f"{LOOPBACK}:{MONGO_PORT}", os.environ["MONGO_ADMIN"]
    return run_mongo_setup(lambda users: mongo_server.set_up_replica_set([member], password, users))


def public_addresses(environ: Mapping[str, str]) -> Addresses:
    """Return the addresses for clients outside the containers."""
    http, mqtt, nats = (
        environ.get(name) or default for name, default in DEFAULT_PUBLIC_URL_BY_VARIABLE.items()
    )
    return Addresses(http, mqtt, nats)


def encode_ready_file(state: State, public: Addresses) -> bytes:
    """Return the content of `ready.json`, without pids."""
    content = ready.encode_ready(state, public, pids={})
    if content is None:
        raise AssertionError("the bootstrap creates an application, a user and a device")
    return content


def encode_simulator_environment(state: State) -> bytes:
    """Return the env file of the simulator (profile `demo`)."""
    device, addresses = state.device, state.addresses
    if device is None or addresses is None:
        raise AssertionError("the bootstrap creates a device")
    return (
        f"THINGWAY_MQTT_URL={addresses.mqtt_url}\n"
        f"THINGWAY_DEVICE_SN={device.sn}\nTHINGWAY_DEVICE_KEY={device.key}\n"
    ).encode()


async def create_first_data(state: State, save: Callable[[], None]) -> None:
    """Wait for the platform and create its first data; repeatable.

    Raises `TimeoutError` if the platform does not start in time.
    """
    addresses = state.addresses
    if addresses is None:
        raise LauncherError("no addresses: the job `setup` has not run")
    async with asyncio.timeout(MAX_PLATFORM_START_SECONDS):
        await wait_until_ready(addresses.base_url, addresses.ca_file)
    await bootstrap(state, addresses, console.default_admin_email(), save)


def _bootstrap() -> None:
    state = states.load(SECRETS_DIRECTORY)
    asyncio.run(create_first_data(state, lambda: states.save(SECRETS_DIRECTORY, state)))
    write_private(
        SECRETS_DIRECTORY / ready.FILE_NAME, encode_ready_file(state, public_addresses(os.environ))
    )
    write_private(SIMULATOR_DIRECTORY / "env", encode_simulator_environment(state))


def run_bootstrap() -> int:
    """Create the first data, and write the files with its credentials."""
    where = "docker-compose run --rm --no-deps credentials"
    done = f"Thingway is ready; credentials: {where}"
    return run_job("bootstrap", _bootstrap, done, "the platform")


JOBS = {"setup": setup, "mongo-setup": mongo_setup, "bootstrap": run_bootstrap}

if __name__ == "__main__":
    sys.exit(JOBS[sys.argv[1]]())
