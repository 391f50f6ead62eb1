"""`thingway app`: what it prints."""

from pathlib import Path
from typing import Any

import pytest

from deploy.local import apps

APPLICATION = {
    "applicationId": 1000000,
    "name": "the application of somebody with a long name",
    "tenant": "default",
    "clientId": "4fc362e0-596a-40f8-8dfb-d3e49fd43a3a",
    "events": True,
}


async def test_a_list_shows_what_is_copied_in_one_piece(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """A client id stays whole where lines are short; the name gives way."""

    async def answer(*_: Any) -> Any:
        return {"applications": [APPLICATION]}

    monkeypatch.setattr(apps, "_call", answer)
    monkeypatch.setenv("COLUMNS", "80")
    await apps.show_all(Path(), as_json=False)
    words = capsys.readouterr().out.split()
    assert {"1000000", APPLICATION["clientId"]} <= set(words)
