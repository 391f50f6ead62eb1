"""What one data directory remembers: `DIR/state.json`."""

from collections.abc import Callable, Collection, Iterable
from pathlib import Path

import msgspec

from deploy.platform import ports
from deploy.platform.errors import CommandError, LauncherError
from deploy.platform.files import write_private
from deploy.platform.ports import LOOPBACK

FILE_NAME = "state.json"


class Addresses(msgspec.Struct, frozen=True):
    """Where the platform of this directory serves, or served last."""

    base_url: str
    mqtt_url: str
    nats_url: str
    """Without credentials; whoever connects brings their own. Of a cluster there are several, and
    several for MQTT, separated by commas."""
    ca_file: str = ""
    """PEM file of the authority that these prove themselves to; empty: the system's."""
    websocket_url: str = ""
    """MQTT over WebSocket; empty: there is none."""
    certificate_url: str = ""
    """MQTT for devices with a certificate; empty: there is none."""
    certificate_nats_url: str = ""
    """NATS for them."""

    def apart(self) -> list["Addresses"]:
        """These with one NATS server each: those of a cluster are separated by commas."""
        return [msgspec.structs.replace(self, nats_url=url) for url in self.nats_url.split(",")]


class Application(msgspec.Struct, frozen=True):
    """The first application."""

    application_id: int
    client_id: str
    client_secret: str


class User(msgspec.Struct, frozen=True):
    """The first user of the console, with the password that auth made."""

    email: str
    password: str


class Device(msgspec.Struct, frozen=True):
    """The simulated device; its id and key follow as the bootstrap goes on."""

    sn: str
    device_id: int | None = None
    key: str | None = None


def member(name: str, number: int) -> str:
    """What a process is called that is the `number`th of its kind."""
    return name if number == 1 else f"{name}-{number}"


class State(msgspec.Struct, kw_only=True):
    """Ports, secrets, and how far the bootstrap has come."""

    ports: dict[str, int] = {}
    hosts: list[str] = msgspec.field(default_factory=lambda: [LOOPBACK])
    """Where the members of the stores listen: one, or three that are a cluster."""
    redis_primary: int = 1
    """Which Redis of a cluster was the primary when it was last looked at."""
    secrets: dict[str, str] = {}
    addresses: Addresses | None = None
    application: Application | None = None
    user: User | None = None
    product: str | None = None
    """Model of the demo product once it is imported."""
    device: Device | None = None

    def secret(self, name: str, make: Callable[[], str]) -> str:
        """The secret called `name`, made when it is first asked for."""
        if name not in self.secrets:
            self.secrets[name] = make()
        return self.secrets[name]

    def begin_with(self, other: "State") -> None:
        """Take what is missing of the first data from another state."""
        self.application = self.application or other.application
        self.user = self.user or other.user
        self.product = self.product or other.product
        self.device = self.device or other.device

    @property
    def is_cluster(self) -> bool:
        """Whether the stores have several members."""
        return len(self.hosts) > 1

    def members(self, name: str, most: int | None = None) -> list[str]:
        """The addresses (`host:port`) of the members of a store, e.g. of `mongod`."""
        hosts = enumerate(self.hosts[:most], 1)
        return [f"{host}:{self.ports[member(name, number)]}" for number, host in hosts]

    def claim_ports(self, names: Iterable[str], reserved: Collection[int]) -> None:
        """Give every name a free internal port: last time's where it is still free."""
        wanted = list(names)
        others = {port for name, port in self.ports.items() if name not in wanted}
        taken = set(reserved) | others
        for name in wanted:
            port = self.ports.get(name)
            if port is None or port in taken or not ports.claim(port):
                port = ports.choose_free(taken)
            self.ports[name] = port
            taken.add(port)


def load(directory: Path) -> State:
    """Read the state of `directory`; an empty one when there is none yet.

    Raises `LauncherError` for a file that cannot be read: starting with new secrets
    would lock the user out of the data.
    """
    path = directory / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except FileNotFoundError:
        return State()
    except (OSError, msgspec.MsgspecError) as error:
        raise LauncherError(f"cannot read {path}: {error}") from error


def load_addressed(directory: Path) -> tuple[State, Addresses]:
    """The state of a platform that was started from `directory`, for commands."""
    state = load(directory)
    if state.addresses is None:
        raise CommandError(
            f"no platform runs with data in {directory}: start one with "
            f"`thingway up --data {directory}`"
        )
    return state, state.addresses


def save(directory: Path, state: State) -> None:
    """Write the state atomically, readable by its owner only."""
    encoded = msgspec.json.format(msgspec.json.encode(state), indent=2)
    write_private(directory / FILE_NAME, encoded)
