"""`thingway app`: what it prints."""

from argparse import Namespace
from typing import Any

import pytest

from deploy.local import administration
from libs.common.contracts.auth import Application, Applications

APPLICATION = Application(
    application_id=1000000,
    name="the application of somebody with a long name",
    tenant="default",
    client_id="4fc362e0-596a-40f8-8dfb-d3e49fd43a3a",
    events=True,
    created_at=0,
)


async def test_a_list_shows_what_is_copied_in_one_piece(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """A client id stays whole where lines are short; the name gives way."""

    async def answer(*_: Any) -> Any:
        return Applications([APPLICATION])

    monkeypatch.setattr(administration, "_ask", answer)
    monkeypatch.setenv("COLUMNS", "80")
    await administration.list_apps(Namespace(json=False))
    words = capsys.readouterr().out.split()
    assert {"1000000", APPLICATION.client_id} <= set(words)
