"""`DIR/ready.json`: addresses and credentials of the running platform."""

import contextlib
from pathlib import Path

import msgspec

from deploy.platform import console
from deploy.platform import state as states
from deploy.platform.files import write_private
from deploy.platform.state import Addresses, FirstApplication, FirstUser, State

FILE_NAME = "ready.json"


class ReadyClient(msgspec.Struct, frozen=True):
    """Credentials of a client: the first application or the console."""

    client_id: str
    client_secret: str


class ReadyDevice(msgspec.Struct, frozen=True):
    """Credentials of the simulated device."""

    sn: str
    key: str
    device_id: int


class ReadyFile(Addresses, frozen=True, kw_only=True):
    """The content of the file.

    `nats_url` has the credentials of the application, which may subscribe to events.
    """

    application: ReadyClient
    user: FirstUser
    """The first console user, a super-admin, with its initial password."""
    console_client: ReadyClient
    """The client with which users get tokens for their passwords."""
    device: ReadyDevice
    pids: dict[str, int]


def nats_url_with_login(addresses: Addresses, application: FirstApplication) -> str:
    """Return the NATS URL with the application's credentials."""
    login = f"{application.client_id}:{application.client_secret}"
    return addresses.nats_url.replace("://", f"://{login}@")


def encode_ready(state: State, addresses: Addresses, pids: dict[str, int]) -> bytes | None:
    """Return the file's content; None until the first start is complete."""
    application, user, device = state.application, state.user, state.device
    if application is None or user is None or device is None:
        return None
    if device.key is None or device.device_id is None:
        return None
    ready = ReadyFile(
        **msgspec.structs.asdict(addresses)
        | {"nats_url": nats_url_with_login(addresses, application)},
        application=ReadyClient(application.client_id, application.client_secret),
        user=user,
        console_client=ReadyClient(*console.console_client(state)),
        device=ReadyDevice(device.sn, device.key, device.device_id),
        pids=pids,
    )
    return msgspec.json.format(msgspec.json.encode(ready), indent=2)


def write(directory: Path, pids: dict[str, int]) -> None:
    """Write the file from the saved state, if the first start is complete."""
    saved = states.load(directory)
    if saved.addresses is None:
        return
    content = encode_ready(saved, saved.addresses, pids)
    if content is not None:
        write_private(directory / FILE_NAME, content)


def read(directory: Path) -> ReadyFile | None:
    """Return the file's content; None if no platform is ready."""
    try:
        return msgspec.json.decode((directory / FILE_NAME).read_bytes(), type=ReadyFile)
    except (OSError, msgspec.MsgspecError):
        return None


def remove(directory: Path) -> None:
    """Delete the file, because the platform is not ready any more."""
    with contextlib.suppress(OSError):
        (directory / FILE_NAME).unlink()
