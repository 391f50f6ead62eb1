"""The saved state of a data directory: `DIR/state.json`."""

import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec

from deploy.platform import ports
from deploy.platform.errors import CommandError, LauncherError
from deploy.platform.files import write_private
from deploy.platform.ports import LOOPBACK

FILE_NAME = "state.json"


class Addresses(msgspec.Struct, frozen=True):
    """Addresses at which clients reach the platform, saved at its last start."""

    base_url: str
    mqtt_url: str
    nats_url: str
    """NATS without credentials. In a cluster, this and `mqtt_url` list one URL per server."""
    ca_file: str = ""
    """PEM file of the servers' authority; empty for the system's authorities."""
    websocket_url: str = ""
    """MQTT over WebSocket; empty if closed."""
    certificate_url: str = ""
    """MQTT for devices with a certificate; empty if closed."""
    certificate_nats_url: str = ""
    """NATS for devices with a certificate; empty if closed."""

    def split_by_nats_server(self) -> list["Addresses"]:
        """Return copies of the addresses with one NATS server each."""
        return [msgspec.structs.replace(self, nats_url=url) for url in self.nats_url.split(",")]


class FirstApplication(msgspec.Struct, frozen=True):
    """The first application."""

    application_id: int
    client_id: str
    client_secret: str


class FirstUser(msgspec.Struct, frozen=True):
    """The first console user, with its initial password."""

    email: str
    password: str


class FirstDevice(msgspec.Struct, frozen=True):
    """The simulated device; id and key are added during the bootstrap."""

    sn: str
    device_id: int | None = None
    key: str | None = None


def member_name(name: str, number: int) -> str:
    """Return the name of the `number`th process of a kind: `mongod`, `mongod-2`, …"""
    return name if number == 1 else f"{name}-{number}"


class State(msgspec.Struct, kw_only=True):
    """Ports, secrets, and first data of an installation; the content of the file."""

    ports: dict[str, int] = {}
    hosts: list[str] = msgspec.field(default_factory=lambda: [LOOPBACK])
    """Hosts of the stores' members: one, or three in a cluster."""
    redis_primary: int = 1
    """Number of the Redis server that was the primary at the last check."""
    secrets: dict[str, str] = {}
    addresses: Addresses | None = None
    application: FirstApplication | None = None
    user: FirstUser | None = None
    product: str | None = None
    """Model of the demo product after its import."""
    device: FirstDevice | None = None

    def get_or_create_secret(self, name: str, create: Callable[[], str]) -> str:
        """Return the secret `name`, created on first use."""
        if name not in self.secrets:
            self.secrets[name] = create()
        return self.secrets[name]

    def adopt_first_data(self, other: "State") -> None:
        """Copy application, user, product and device from another state if missing."""
        self.application = self.application or other.application
        self.user = self.user or other.user
        self.product = self.product or other.product
        self.device = self.device or other.device

    @property
    def is_cluster(self) -> bool:
        """Return whether the stores have several members."""
        return len(self.hosts) > 1

    def member_addresses(self, name: str, limit: int | None = None) -> list[str]:
        """Return the addresses (`host:port`) of a store's members, e.g. of `mongod`."""
        hosts = enumerate(self.hosts[:limit], 1)
        return [f"{host}:{self.ports[member_name(name, number)]}" for number, host in hosts]

    def claim_ports(self, names: Iterable[str], reserved: Collection[int]) -> None:
        """Claim an internal port per name, the saved one if free; save it in `ports`."""
        port_names = list(names)
        others = {port for name, port in self.ports.items() if name not in port_names}
        used_ports = set(reserved) | others
        for name in port_names:
            port = self.ports.get(name)
            if port is None or port in used_ports or not ports.claim(port):
                port = ports.claim_random(used_ports)
            self.ports[name] = port
            used_ports.add(port)


def load(directory: Path) -> State:
    """Return the state of `directory`; an empty one if none exists.

    Raises `LauncherError` for an unreadable file: new secrets would lock the user out of the data.
    """
    path = directory / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except FileNotFoundError:
        return State()
    except (OSError, msgspec.MsgspecError) as error:
        raise LauncherError(f"cannot read {path}: {error}") from error


def load_with_addresses(directory: Path) -> tuple[State, Addresses]:
    """Return state and addresses of a platform that was started from `directory`."""
    state = load(directory)
    if state.addresses is None:
        raise CommandError(
            f"no platform runs with data in {directory}: start it with "
            f"`thingway up --data {directory}`"
        )
    return state, state.addresses


def require_owner(directory: Path) -> None:
    """Raise `LauncherError` if another user owns the state of `directory`.

    Root may replace the file, and then the owner, as whom the platform runs, cannot read it.
    """
    path = directory / FILE_NAME
    try:
        owner = path.stat().st_uid
    except OSError:  # absent, or unreadable: `load` says so
        return
    if owner != os.geteuid():
        try:
            name = path.owner()
        except KeyError:
            name = f"#{owner}"
        raise LauncherError(
            f"{path} belongs to another user: run the command as this user, with `sudo -u {name}`"
        )


def save(directory: Path, state: State) -> None:
    """Write the state atomically, readable by its owner only."""
    encoded = msgspec.json.format(msgspec.json.encode(state), indent=2)
    write_private(directory / FILE_NAME, encoded)
