"""The output of `thingway app` and `thingway user`."""

from argparse import Namespace
from typing import Any

import pytest

from deploy.local import administration
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
