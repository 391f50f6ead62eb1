"""What a data directory remembers survives, stays private, and heals."""

import os
import socket
from pathlib import Path

import pytest

from deploy.local import lock
from deploy.platform import console, ports, ready
from deploy.platform import state as states
from deploy.platform.errors import CommandError, Exit, LauncherError
from deploy.platform.state import Addresses, Application, Device, State, User

ADDRESSES = Addresses("http://127.0.0.1:8080", "mqtt://127.0.0.1:1883", "nats://127.0.0.1:4222")


def test_a_saved_state_is_read_again(tmp_path: Path) -> None:
    """Everything that was saved comes back, in a file of mode 0600."""
    state = State(ports={"redis": 20001}, device=Device("DEMO1", 7, "key"), addresses=ADDRESSES)
    states.save(tmp_path, state)
    assert states.load(tmp_path) == state
    assert (tmp_path / states.FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_no_half_written_file_is_left(tmp_path: Path) -> None:
    """Writing leaves the state and nothing else behind."""
    states.save(tmp_path, State())
    states.save(tmp_path, State())
    assert [path.name for path in tmp_path.iterdir()] == [states.FILE_NAME]


def test_a_broken_state_is_refused(tmp_path: Path) -> None:
    """A damaged file is not replaced by new secrets: that would lock the data away."""
    (tmp_path / states.FILE_NAME).write_text("{")
    with pytest.raises(LauncherError) as raised:
        states.load(tmp_path)
    assert raised.value.exit_code == Exit.CANNOT_START


def test_a_secret_is_made_once() -> None:
    """The second question gets the first answer."""
    state = State()
    assert state.secret("a", lambda: "one") == state.secret("a", lambda: "two")


def test_internal_ports_are_kept_while_free() -> None:
    """A second start uses the ports of the first."""
    state = State()
    state.claim_ports(["mongod", "redis"], reserved=())
    first = dict(state.ports)
    state.claim_ports(["mongod", "redis"], reserved=())
    assert state.ports == first
    assert len(set(first.values())) == 2


def test_a_taken_internal_port_is_replaced() -> None:
    """A port that somebody else took meanwhile, or the user wants, is given up."""
    state = State()
    state.claim_ports(["mongod", "redis"], reserved=())
    before = dict(state.ports)
    with socket.create_server((ports.LOOPBACK, before["mongod"])):
        state.claim_ports(["mongod", "redis"], reserved={before["redis"]})
    assert state.ports["mongod"] != before["mongod"]
    assert state.ports["redis"] != before["redis"]


def test_a_taken_public_port_is_refused() -> None:
    """The line names the port and the option."""
    with socket.create_server((ports.LOOPBACK, 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(LauncherError, match=f"port {taken} .* taken.*--mqtt-port"):
            ports.require_free(ports.LOOPBACK, {"--mqtt-port": taken})


def test_two_options_may_not_name_one_port() -> None:
    """The same port for two doors is a mistake of the user's."""
    free = ports.choose_free()
    with pytest.raises(LauncherError, match="--port and --nats-port"):
        ports.require_free(ports.LOOPBACK, {"--port": free, "--nats-port": free})


def test_commands_need_a_platform(tmp_path: Path) -> None:
    """A directory without a platform is told in one line, exit code 1."""
    with pytest.raises(CommandError, match="thingway up") as raised:
        states.load_addressed(tmp_path)
    assert raised.value.exit_code == Exit.FAILED


def test_one_launcher_per_directory(tmp_path: Path) -> None:
    """A second launcher is refused while the first lives, and told its pid."""
    handle = lock.acquire(tmp_path)
    assert lock.is_held(tmp_path)
    with pytest.raises(LauncherError, match=f"another launcher .*{os.getpid()}"):
        lock.acquire(tmp_path)
    os.close(handle)
    assert not lock.is_held(tmp_path)


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    """A path where no directory can be is refused with the option's name."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LauncherError, match="--data"):
        lock.acquire(tmp_path / "file")


def test_ready_file_follows_the_state(tmp_path: Path) -> None:
    """The file carries all credentials, the application's in the NATS address too, and the pids."""
    states.save(
        tmp_path,
        State(
            addresses=ADDRESSES,
            secrets={console.CLIENT_ID: "console", console.CLIENT_SECRET: "its secret"},
            application=Application(1, "id", "secret"),
            user=User("admin@example.com", "Passw0rd"),
            device=Device("DEMO1", 7, "key"),
        ),
    )
    ready.write(tmp_path, {"mongod": 42})
    found = ready.read(tmp_path)
    assert found is not None
    assert found.nats_url == "nats://id:secret@127.0.0.1:4222"
    assert found.user == states.User("admin@example.com", "Passw0rd")
    assert found.console_client == ready.ReadyClient("console", "its secret")
    assert found.pids == {"mongod": 42}
    assert (tmp_path / ready.FILE_NAME).stat().st_mode & 0o777 == 0o600
    ready.remove(tmp_path)
    assert ready.read(tmp_path) is None
