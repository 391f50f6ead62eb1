"""The `setup` job of compose: which container gets which secret."""

from dataclasses import replace
from pathlib import Path

import pytest

from deploy.docker.entry import read_variables
from deploy.docker.jobs import PLAIN_ADDRESSES, change_volume_owner, read_database_users, run_job
from deploy.platform import console
from deploy.platform import state as states
from deploy.platform.certificates import DEVICE_AUTHORITY_SECRET
from deploy.platform.errors import CommandError
from deploy.platform.shares import build_bootstrap_state, create_secret_files
from deploy.platform.state import FirstUser, State


def environments(state: State) -> dict[str, dict[str, str]]:
    """Return the env file of each service."""
    return {
        share.part: read_variables(share.content)
        for share in create_secret_files(state, PLAIN_ADDRESSES)
        if share.name == "env"
    }


def test_auth_and_the_bootstrap_job_know_the_same_console_client() -> None:
    """No other service gets it."""
    state = State()

    given = environments(state)

    shown = console.console_client(build_bootstrap_state(state, State(), PLAIN_ADDRESSES))
    assert shown == (
        given["auth"]["THINGWAY_CONSOLE_CLIENT_ID"],
        given["auth"]["THINGWAY_CONSOLE_CLIENT_SECRET"],
    )
    owners = [name for name, values in given.items() if shown[1] in values.values()]
    assert owners == ["auth"]


def test_a_second_start_keeps_the_bootstrap_state(tmp_path: Path) -> None:
    """The job gets a changed console client and keeps its user."""
    state = State()
    done = build_bootstrap_state(state, State(), PLAIN_ADDRESSES)
    done.user = FirstUser("a@b.de", "Passw0rd")
    states.save(tmp_path, done)
    state.secrets |= {console.CLIENT_ID: "iab", console.CLIENT_SECRET: "another"}

    again = build_bootstrap_state(state, states.load(tmp_path), PLAIN_ADDRESSES)

    assert again.user == FirstUser("a@b.de", "Passw0rd")
    assert console.console_client(again) == ("iab", "another")
    assert set(again.secrets) == {
        "nats.admin",
        console.CLIENT_ID,
        console.CLIENT_SECRET,
        DEVICE_AUTHORITY_SECRET,
    }


def test_an_exporter_has_an_own_user_in_each_store() -> None:
    """Only where the operator has exporters; it may read no keys of Redis."""
    state = State()
    shares = {
        (share.part, share.name): share.content
        for share in create_secret_files(state, replace(PLAIN_ADDRESSES, exporters=True))
    }
    [line] = [
        line
        for line in shares["redis", "users.acl"].splitlines()
        if line.startswith("user exporter")
    ]
    assert "~" not in line
    users = read_database_users(read_variables(shares["mongo-setup", "env"]))
    [user] = [user for user in users if user.name == "exporter"]
    assert (user.password, user.role) == (shares["mongo", "exporter"], "clusterMonitor")
    assert not [
        share for share in create_secret_files(State(), PLAIN_ADDRESSES) if share.name == "exporter"
    ]


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (CommandError("no platform"), "setup: no platform"),
        (PermissionError(13, "not allowed"), "setup: [Errno 13] not allowed"),
        (TimeoutError(), "setup: MongoDB was not ready within 180 s"),
    ],
)
def test_a_failed_job_prints_the_reason_in_one_line(
    error: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 1, also after a timeout."""
    assert run_job("setup", lambda: _raise(error), "done", "MongoDB") == 1
    assert capsys.readouterr() == ("", f"{line}\n")


def test_a_successful_job_prints_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 0."""
    assert run_job("setup", lambda: None, "done") == 0
    assert capsys.readouterr() == ("setup: done\n", "")


def test_files_of_a_server_that_ran_as_another_user_get_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that have the right owner stay unchanged, and links are not followed."""
    owners: dict[Path, int] = {}

    def chown(name: str, user: int, *_: int, dir_fd: int, follow_symlinks: bool) -> None:
        assert not follow_symlinks
        owners[Path(f"/proc/self/fd/{dir_fd}").readlink() / name] = user

    monkeypatch.setattr("os.chown", chown)
    (tmp_path / "link").symlink_to("/etc")
    file = tmp_path / "appendonlydir" / "appendonly.aof"
    file.parent.mkdir()
    file.touch()
    change_volume_owner(tmp_path, file.stat().st_uid)
    assert owners == {}
    change_volume_owner(tmp_path, 999)
    assert owners == dict.fromkeys((tmp_path, file.parent, file), 999)
