"""The commands of the operator: their output, and whose files they change."""

import os
from argparse import Namespace
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.local import administration, simulate
from deploy.platform import state as states
from deploy.platform.errors import CommandError, LauncherError
from deploy.platform.state import Addresses, State
from libs.common.contracts.auth import Application, Applications, ListedUser, Users

APPLICATION = Application(
    application_id=1000000,
    name="the application of somebody with a long name",
    tenant="default",
    client_id="4fc362e0-596a-40f8-8dfb-d3e49fd43a3a",
    events=True,
    created_at=0,
)


async def test_ids_in_a_list_are_not_wrapped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """On narrow terminals the name is wrapped instead."""

    async def answer(*_: Any) -> Any:
        return Applications([APPLICATION])

    monkeypatch.setattr(administration, "_call_auth", answer)
    monkeypatch.setenv("COLUMNS", "80")
    await administration.list_apps(Namespace(json=False))
    words = capsys.readouterr().out.split()
    assert {"1000000", APPLICATION.client_id} <= set(words)


async def test_users_are_listed_with_what_they_may(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """An operator who forgot the address of the administrator finds it."""
    user = ListedUser(1, "ann@example.com", "Ann", super_admin=True, enabled=False, created_at=0)

    async def answer(*arguments: Any) -> Any:
        assert arguments[1] == "list_users"
        return Users([user])

    monkeypatch.setattr(administration, "_call_auth", answer)
    monkeypatch.setenv("COLUMNS", "100")
    await administration.list_users(Namespace(json=False, tenant="default", super_admins=True))
    line = next(line for line in capsys.readouterr().out.splitlines() if user.email in line)
    assert line.replace("│", " ").split()[:4] == ["ann@example.com", "Ann", "True", "False"]


def _options(directory: Path) -> Namespace:
    addresses = Addresses("http://127.0.0.1:1", "mqtt://127.0.0.1:1", "nats://127.0.0.1:1")
    states.save(directory, State(addresses=addresses, secrets={"nats.admin": "password"}))
    options = {"id": 1, "tenant": "default", "email": "ann@example.com", "sn": "D1", "days": 1}
    return Namespace(data=directory, out=directory / "absent", csr=None, json=False, **options)


@pytest.mark.parametrize(
    "command",
    [
        administration.rotate_app,
        administration.reset_password,
        administration.issue_certificate,
        simulate.simulate,
    ],
)
async def test_another_user_changes_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[[Namespace], Awaitable[None]],
):
    """Root would leave a state that the user of the platform cannot read."""
    options = _options(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(LauncherError, match="belongs to another user"):
        await command(options)


async def test_a_certificate_that_cannot_be_written_is_not_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It would count as one of the device's certificates, although nobody has it."""

    async def answer(*_: Any) -> Any:
        pytest.fail("registered")

    monkeypatch.setattr(administration, "_call_auth", answer)
    with pytest.raises(CommandError, match="--out"):
        await administration.issue_certificate(_options(tmp_path))
