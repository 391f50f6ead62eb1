"""The saved state of a data directory is complete, private and safe."""

import os
import socket
from pathlib import Path

import pytest

from deploy.local import lock
from deploy.platform import console, ports, ready
from deploy.platform import state as states
from deploy.platform.errors import CommandError, Exit, LauncherError
from deploy.platform.state import Addresses, FirstApplication, FirstDevice, FirstUser, State

ADDRESSES = Addresses("http://127.0.0.1:8080", "mqtt://127.0.0.1:1883", "nats://127.0.0.1:4222")


def test_a_saved_state_is_read_again(tmp_path: Path) -> None:
    """Everything saved is loaded, from a file of mode 0600."""
    state = State(
        ports={"redis": 20001}, device=FirstDevice("DEMO1", 7, "key"), addresses=ADDRESSES
    )
    states.save(tmp_path, state)
    assert states.load(tmp_path) == state
    assert (tmp_path / states.FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_no_half_written_file_is_left(tmp_path: Path) -> None:
    """A write leaves only the state file."""
    states.save(tmp_path, State())
    states.save(tmp_path, State())
    assert [path.name for path in tmp_path.iterdir()] == [states.FILE_NAME]


def test_a_damaged_state_is_rejected(tmp_path: Path) -> None:
    """New secrets would lock the user out of the data."""
    (tmp_path / states.FILE_NAME).write_text("{")
    with pytest.raises(LauncherError) as raised:
        states.load(tmp_path)
    assert raised.value.exit_code == Exit.CANNOT_START


def test_a_secret_is_created_once() -> None:
    """The second call returns the same secret."""
    state = State()
    assert state.get_or_create_secret("a", lambda: "one") == state.get_or_create_secret(
        "a", lambda: "two"
    )


def test_internal_ports_are_kept_while_free() -> None:
    """A second start uses the ports of the first."""
    state = State()
    state.claim_ports(["mongod", "redis"], reserved=())
    first = dict(state.ports)
    state.claim_ports(["mongod", "redis"], reserved=())
    assert state.ports == first
    assert len(set(first.values())) == 2


def test_a_taken_internal_port_is_replaced() -> None:
    """A port that is in use or reserved is replaced."""
    state = State()
    state.claim_ports(["mongod", "redis"], reserved=())
    before = dict(state.ports)
    with socket.create_server((ports.LOOPBACK, before["mongod"])):
        state.claim_ports(["mongod", "redis"], reserved={before["redis"]})
    assert state.ports["mongod"] != before["mongod"]
    assert state.ports["redis"] != before["redis"]


def test_a_public_port_in_use_is_rejected() -> None:
    """The message contains the port and the option."""
    with socket.create_server((ports.LOOPBACK, 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(LauncherError, match=f"port {taken} .* in use.*--mqtt-port"):
            ports.require_free(ports.LOOPBACK, {"--mqtt-port": taken})


def test_two_options_with_the_same_port_are_rejected() -> None:
    """The message contains both options."""
    free = ports.claim_random()
    with pytest.raises(LauncherError, match="--port and --nats-port"):
        ports.require_free(ports.LOOPBACK, {"--port": free, "--nats-port": free})


def test_commands_require_a_platform(tmp_path: Path) -> None:
    """The exit code is 1, with one line of explanation."""
    with pytest.raises(CommandError, match="thingway up") as raised:
        states.load_with_addresses(tmp_path)
    assert raised.value.exit_code == Exit.FAILED


def test_one_launcher_per_directory(tmp_path: Path) -> None:
    """A second launcher is rejected with the pid of the first."""
    handle = lock.acquire(tmp_path)
    assert lock.is_held(tmp_path)
    with pytest.raises(LauncherError, match=f"another launcher .*{os.getpid()}"):
        lock.acquire(tmp_path)
    os.close(handle)
    assert not lock.is_held(tmp_path)


def test_another_user_does_not_start_a_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root would write files that the owner of the state cannot read."""
    states.save(tmp_path, State())
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(LauncherError, match="sudo -u"):
        lock.acquire(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [states.FILE_NAME]


def test_an_unreadable_directory_is_not_reported_as_unused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says as whom to run the command."""

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(LauncherError, match="Permission denied: run the command as"):
        lock.is_held(tmp_path)


def test_a_file_cannot_be_the_data_directory(tmp_path: Path) -> None:
    """The message contains the option."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LauncherError, match="--data"):
        lock.acquire(tmp_path / "file")


def test_the_ready_file_contains_credentials_and_pids(tmp_path: Path) -> None:
    """The NATS URL contains the application's credentials."""
    states.save(
        tmp_path,
        State(
            addresses=ADDRESSES,
            secrets={console.CLIENT_ID: "console", console.CLIENT_SECRET: "its secret"},
            application=FirstApplication(1, "id", "secret"),
            user=FirstUser("admin@example.com", "Passw0rd"),
            device=FirstDevice("DEMO1", 7, "key"),
        ),
    )
    ready.write(tmp_path, {"mongod": 42})
    found = ready.read(tmp_path)
    assert found is not None
    assert found.nats_url == "nats://id:secret@127.0.0.1:4222"
    assert found.user == states.FirstUser("admin@example.com", "Passw0rd")
    assert found.console_client == ready.ReadyClient("console", "its secret")
    assert found.pids == {"mongod": 42}
    assert (tmp_path / ready.FILE_NAME).stat().st_mode & 0o777 == 0o600
    ready.remove(tmp_path)
    assert ready.read(tmp_path) is None
