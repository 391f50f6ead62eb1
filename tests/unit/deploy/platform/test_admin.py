"""Commands fail immediately when no platform is running."""

import pytest
from nats.aio.transport import TcpTransport

from deploy.platform import admin
from deploy.platform.errors import CommandError
from deploy.platform.state import Addresses

ATTEMPTS = 2


async def test_a_missing_platform_is_reported_immediately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command makes two attempts; the client's default is 60, 2 s apart."""
    attempts = 0

    async def refuse(*_: object, **__: object) -> None:
        nonlocal attempts
        attempts += 1
        raise ConnectionRefusedError

    monkeypatch.setattr(TcpTransport, "connect", refuse)
    with pytest.raises(CommandError, match=r"is `thingway up` running\?$"):
        async with admin.connect_rpc(Addresses("", "", "nats://127.0.0.1:4222"), "x"):
            pass
    assert attempts == ATTEMPTS
