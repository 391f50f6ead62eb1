"""Commands talk to a platform that runs, and say so at once when none does."""

import pytest
from nats.aio.transport import TcpTransport

from deploy.platform import admin
from deploy.platform.errors import CommandError
from deploy.platform.state import Addresses

ATTEMPTS = 2


async def test_a_platform_that_is_not_there_is_not_looked_for_for_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command gives up after two attempts; the client's default are 60, 2 s apart."""
    attempts = 0

    async def refuse(*_: object, **__: object) -> None:
        nonlocal attempts
        attempts += 1
        raise ConnectionRefusedError

    monkeypatch.setattr(TcpTransport, "connect", refuse)
    with pytest.raises(CommandError, match=r"is `thingway up` running\?$"):
        async with admin.connect(Addresses("", "", "nats://127.0.0.1:4222"), "x"):
            pass
    assert attempts == ATTEMPTS
