"""Compose's first job: make the secrets once, and hand each container its own.

`/state` (a volume that only this job sees) keeps all of them; `/out/NAME` is the volume
that container NAME finds at `/secrets`. Later starts make what is missing and change
nothing else.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path, PurePath
from urllib.parse import urlsplit

from deploy.platform import console, keys, services
from deploy.platform import state as states
from deploy.platform.certificates import DEVICES, device_authority
from deploy.platform.errors import LauncherError
from deploy.platform.files import write_private
from deploy.platform.nats import ADMIN, USERS, NatsConfig, ServerFiles, render_nats_config
from deploy.platform.redis_server import render_acl
from deploy.platform.services import SERVICES, Doors, Service
from deploy.platform.state import Addresses, State

STATE = Path("/state")
OUT = Path("/out")

OURS = 10001
"""The user of our image."""
SERVERS = 999
"""The user that the official images of MongoDB and Redis run as."""
ROOT = 0

MONGO_PORT, NATS_PORT, MQTT_PORT, REDIS_PORT, SERVICE_PORT = 27017, 4222, 1883, 6379, 8000
WEBSOCKET_PORT = 8083
PLAIN = Addresses(
    base_url=f"http://gateway:{SERVICE_PORT}",
    mqtt_url=f"mqtt://nats:{MQTT_PORT}",
    nats_url=f"nats://nats:{NATS_PORT}",
)
ENCRYPTED = Addresses(
    base_url=f"https://gateway:{SERVICE_PORT}",
    mqtt_url=f"mqtts://nats:{MQTT_PORT}",
    nats_url=f"tls://nats:{NATS_PORT}",
    ca_file="/tls/ca.pem",
)
"""With docker-compose.tls.yml."""
SERVER = ServerFiles(PurePath("/tls/server.pem"), PurePath("/tls/server.key"))
TLS = "THINGWAY_TLS"
"""Set by docker-compose.tls.yml."""
IN_THE_YAML = (
    "THINGWAY_HOST",
    "THINGWAY_PORT",
    "THINGWAY_UPSTREAMS",
    "THINGWAY_WATCHED",
    "THINGWAY_TLS_CERTIFICATE",
    "THINGWAY_TLS_KEY",
    "THINGWAY_CA_FILE",
    "THINGWAY_DEVICE_CA_FILE",
    "THINGWAY_CERTIFICATE_PORT",
    "THINGWAY_CERTIFICATE_NATS_PORT",
)
"""Settings that are no secrets stand in docker-compose.yml."""


@dataclass(frozen=True)
class Share:
    """One file for one container, readable by its user only."""

    volume: str
    name: str
    content: str
    owner: int


def prepare(state: State, addresses: Addresses = PLAIN) -> list[Share]:
    """Complete the secrets in `state` and say who gets what.

    `addresses` is where the containers find each other.
    """
    state.ports = dict.fromkeys(services.internal_port_names(), SERVICE_PORT)
    state.ports |= {"mongod": MONGO_PORT, "redis": REDIS_PORT}
    shares = [Share(one.name, "env", _environment(one, state, addresses), OURS) for one in SERVICES]
    shares.append(Share("mongo", "key", state.secret("mongo_key_file", keys.new_key_file), SERVERS))
    shares.append(Share("redis", "users.acl", render_acl(services.redis_users(state)), SERVERS))
    shares.append(Share("nats", "nats.conf", _nats(state, addresses), ROOT))
    authority = device_authority(state).certificate
    shares.append(Share("gateway", "device-ca.pem", authority, OURS))
    shares.append(Share("mongo-setup", "env", _mongo_users(state), OURS))
    return shares


def _environment(service: Service, state: State, addresses: Addresses) -> str:
    """The launcher's settings of a service, with compose's host names in its addresses."""
    host = "0.0.0.0"  # noqa: S104 - it is in a container
    doors = Doors(host, SERVICE_PORT, "", addresses.nats_url, addresses.mqtt_url)
    given = services.environment(service, state, doors)
    for name in IN_THE_YAML:
        given.pop(name, None)
    if url := given.get("THINGWAY_MONGO_URL"):
        # The member of the replica set calls itself 127.0.0.1, hence the direct connection.
        given["THINGWAY_MONGO_URL"] = _at("mongo", url) + "&directConnection=true"
    if url := given.get("THINGWAY_REDIS_URL"):
        given["THINGWAY_REDIS_URL"] = _at("redis", url)
    return _lines(given)


def _at(host: str, url: str) -> str:
    """The same address on another host."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{login}@{host}:{parts.port}").geturl()


def _nats(state: State, addresses: Addresses) -> str:
    passwords = {user: state.secret(f"nats.{user}", keys.new_password) for user in USERS}
    seed = state.secret("callout_seed", keys.new_account_seed)
    return render_nats_config(
        NatsConfig(
            passwords=passwords,
            callout_issuer=keys.account_public_key(seed),
            store_dir=PurePath("/data"),
            host="0.0.0.0",  # noqa: S104 - docker-compose.yml decides what is published
            port=NATS_PORT,
            mqtt_port=MQTT_PORT,
            websocket_port=WEBSOCKET_PORT,
            tls=SERVER if addresses is ENCRYPTED else None,
            monitor_port=8222,
        )
    )


def _mongo_users(state: State) -> str:
    users = [*services.database_users(state), services.backup_user(state)]
    passwords = {f"MONGO_{user.name}": user.password for user in users}
    passwords["MONGO_ADMIN"] = state.secret("mongo.admin", keys.new_password)
    return _lines(passwords)


def _lines(variables: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def bootstrap_state(state: State, found: State, addresses: Addresses = PLAIN) -> State:
    """What the bootstrap job goes on from: what it found, and what it may know of the secrets.

    These are the administrator's login, the console client, which it shows, and the authority of
    device certificates, which `thingway device certificate` issues in this container.
    """
    identity, secret = console.client(state)
    device_authority(state)
    found.secrets = {
        f"nats.{ADMIN}": state.secret(f"nats.{ADMIN}", keys.new_password),
        console.CLIENT_ID: identity,
        console.CLIENT_SECRET: secret,
        DEVICES: state.secrets[DEVICES],
    }
    found.begin_with(state)  # which has them after a restore
    found.addresses = addresses
    return found


def hand_out(out: Path, share: Share) -> None:
    """Write a share into its volume; one that is there already is left alone."""
    directory = out / share.volume
    if not directory.is_dir():
        raise LauncherError(f"no volume is mounted at {directory}: see docker-compose.yml")
    path = directory / share.name
    if path.exists() and path.read_text() == share.content and path.stat().st_uid == share.owner:
        return
    write_private(path, share.content.encode())
    os.chown(path, share.owner, share.owner)


def _hand_out_bootstrap_state(out: Path, state: State, addresses: Addresses) -> None:
    """Give the bootstrap job its state, and two volumes that it may write to."""
    directory = out / "bootstrap"
    for volume in (directory, out / "simulator"):
        os.chown(volume, OURS, OURS)
    states.save(directory, bootstrap_state(state, states.load(directory), addresses))
    os.chown(directory / states.FILE_NAME, OURS, OURS)


def main() -> int:
    """Make, keep, hand out."""
    try:
        state = states.load(STATE)
        console.adopt_client(state, os.environ)
        addresses = ENCRYPTED if os.environ.get(TLS) else PLAIN
        shares = prepare(state, addresses)
        states.save(STATE, state)
        for share in shares:
            hand_out(OUT, share)
        _hand_out_bootstrap_state(OUT, state, addresses)
    except (LauncherError, OSError) as error:
        sys.stderr.write(f"setup: {error}\n")
        return 1
    sys.stdout.write("setup: every container has its secrets\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
