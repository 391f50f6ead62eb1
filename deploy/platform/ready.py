"""`DIR/ready.json`: what a program needs to use the platform that runs there."""

import contextlib
from pathlib import Path

import msgspec

from deploy.platform import console
from deploy.platform import state as states
from deploy.platform.files import write_private
from deploy.platform.state import Addresses, Application, State, User

FILE_NAME = "ready.json"


class ReadyClient(msgspec.Struct, frozen=True):
    """Credentials of a client: of the first application, or of the console."""

    client_id: str
    client_secret: str


class ReadyDevice(msgspec.Struct, frozen=True):
    """Credentials of the simulated device."""

    sn: str
    key: str
    device_id: int


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content; a version without TLS says nothing of what is empty by default."""

    base_url: str
    mqtt_url: str
    nats_url: str
    """With the application's id and secret: it may subscribe to events. In a cluster one for each
    server, separated by commas, as is `mqtt_url`."""
    ca_file: str = ""
    """PEM file of the authority to trust; empty when it is the system's, or nothing has TLS."""
    websocket_url: str = ""
    """MQTT over WebSocket; empty when it is not open."""
    certificate_url: str = ""
    """MQTT with a device certificate; empty when it is not open."""
    certificate_nats_url: str = ""
    """NATS with one."""
    application: ReadyClient
    user: User
    """The first user of the console, a super-admin, with the password it began with."""
    console_client: ReadyClient
    """With it and a password people get a token."""
    device: ReadyDevice
    pids: dict[str, int]


def nats_url_of(addresses: Addresses, application: Application) -> str:
    """The NATS address with the application's credentials as user information."""
    login = f"{application.client_id}:{application.client_secret}"
    return addresses.nats_url.replace("://", f"://{login}@")


def content_of(state: State, addresses: Addresses, pids: dict[str, int]) -> bytes | None:
    """The file's content; None while the first start is not complete."""
    application, user, device = state.application, state.user, state.device
    if application is None or user is None or device is None:
        return None
    if device.key is None or device.device_id is None:
        return None
    ready = Ready(
        base_url=addresses.base_url,
        mqtt_url=addresses.mqtt_url,
        nats_url=nats_url_of(addresses, application),
        ca_file=addresses.ca_file,
        websocket_url=addresses.websocket_url,
        certificate_url=addresses.certificate_url,
        certificate_nats_url=addresses.certificate_nats_url,
        application=ReadyClient(application.client_id, application.client_secret),
        user=user,
        console_client=ReadyClient(*console.client(state)),
        device=ReadyDevice(device.sn, device.key, device.device_id),
        pids=pids,
    )
    return msgspec.json.format(msgspec.json.encode(ready), indent=2)


def write(directory: Path, pids: dict[str, int]) -> None:
    """Write the file from the saved state, which commands may have changed since."""
    saved = states.load(directory)
    if saved.addresses is None:
        return
    content = content_of(saved, saved.addresses, pids)
    if content is not None:
        write_private(directory / FILE_NAME, content)


def read(directory: Path) -> Ready | None:
    """Read the file; None when no platform is ready there."""
    try:
        return msgspec.json.decode((directory / FILE_NAME).read_bytes(), type=Ready)
    except (OSError, msgspec.MsgspecError):
        return None


def remove(directory: Path) -> None:
    """Remove the file: the platform is not ready (any more)."""
    with contextlib.suppress(OSError):
        (directory / FILE_NAME).unlink()
