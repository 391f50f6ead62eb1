"""`DIR/ready.json`: what a program needs to use the platform that runs there."""

import contextlib
from pathlib import Path

import msgspec

from deploy.local import state as states
from deploy.local.files import write_private
from deploy.local.state import Addresses, Application

FILE_NAME = "ready.json"


class ReadyApplication(msgspec.Struct, frozen=True):
    """Credentials of the first application."""

    client_id: str
    client_secret: str


class ReadyDevice(msgspec.Struct, frozen=True):
    """Credentials of the simulated device."""

    sn: str
    key: str
    device_id: int


class Ready(msgspec.Struct, frozen=True):
    """The file's content."""

    base_url: str
    mqtt_url: str
    nats_url: str
    """With the application's id and secret: it may subscribe to events."""
    application: ReadyApplication
    device: ReadyDevice
    pids: dict[str, int]


def nats_url_of(addresses: Addresses, application: Application) -> str:
    """The NATS address with the application's credentials as user information."""
    login = f"{application.client_id}:{application.client_secret}"
    return addresses.nats_url.replace("://", f"://{login}@", 1)


def write(directory: Path, pids: dict[str, int]) -> None:
    """Write the file from the saved state, which commands may have changed since."""
    saved = states.load(directory)
    addresses, application, device = saved.addresses, saved.application, saved.device
    if addresses is None or application is None or device is None:
        return
    if device.key is None or device.device_id is None:
        return
    ready = Ready(
        base_url=addresses.base_url,
        mqtt_url=addresses.mqtt_url,
        nats_url=nats_url_of(addresses, application),
        application=ReadyApplication(application.client_id, application.client_secret),
        device=ReadyDevice(device.sn, device.key, device.device_id),
        pids=pids,
    )
    encoded = msgspec.json.format(msgspec.json.encode(ready), indent=2)
    write_private(directory / FILE_NAME, encoded)


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
