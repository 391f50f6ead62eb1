"""A restore into stores that have just been created."""

import pytest

from deploy.backup.stores import Stores
from deploy.local import backups
from deploy.platform.errors import CommandError
from deploy.platform.state import Addresses, State

NEW = Stores(state=State(), mongo_url="", nats=Addresses("", "", ""), redis_url="")


async def test_a_restore_waits_until_new_stores_accept_its_logins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It prints the first reason once."""
    answers = [CommandError("no user auth"), CommandError("no user device"), None]

    async def check(_: Stores) -> None:
        if (error := answers.pop(0)) is not None:
            raise error

    monkeypatch.setattr(backups, "check_logins", check)
    await backups._wait_for_stores(NEW)
    assert answers == []
    assert capsys.readouterr().err == "waiting for the stores: no user auth\n"


async def test_the_wait_for_stores_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error contains the reason."""

    async def check(_: Stores) -> None:
        raise CommandError("no user auth")

    monkeypatch.setattr(backups, "check_logins", check)
    monkeypatch.setattr(backups, "_START_SECONDS", 0.01)
    with pytest.raises(CommandError, match="not ready in time: no user auth"):
        await backups._wait_for_stores(NEW)
