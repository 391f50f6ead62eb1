"""The requests of one address are let in by turns."""

import asyncio
from typing import cast

import pytest

from libs.common.errors import TooManyRequests
from libs.common.identity.access import AccessReader
from libs.common.identity.device_keys import DeviceKeyReader
from libs.common.identity.tokens import TokenReader
from services.gateway.access import gatekeeper
from services.gateway.access.addresses import ClientOrigin
from services.gateway.access.gatekeeper import (
    MAX_ADMISSIONS_PER_ADDRESS,
    RateLimiters,
    RequestAdmission,
)
from services.gateway.rates import RateLimiter
from services.gateway.routes import RouteTable

PATH = b"/workflow/hooks/x"
"""A path that needs no credential."""
CROWD, OTHER = "10.0.0.1", "10.0.0.2"


class Busy:
    """A limiter that does not answer for one address until it is opened."""

    def __init__(self) -> None:
        self.asked = 0
        self.full = asyncio.Event()
        self.open = asyncio.Event()

    async def take_permit(self, key: str) -> None:
        """Answer, or wait."""
        if key == CROWD:
            self.asked += 1
            if self.asked == MAX_ADMISSIONS_PER_ADDRESS:
                self.full.set()
            await self.open.wait()


@pytest.fixture
def busy() -> Busy:
    return Busy()


@pytest.fixture
def keeper(busy: Busy) -> RequestAdmission:
    limiter = cast("RateLimiter", busy)
    readers = cast("TokenReader", None), cast("DeviceKeyReader", None), cast("AccessReader", None)
    return RequestAdmission(*readers, RateLimiters(limiter, limiter, limiter))


async def come(keeper: RequestAdmission, address: str) -> None:
    route = RouteTable().find(PATH)
    assert route is not None
    await keeper.admit(route, PATH, ClientOrigin(address, address, "http", "here"), None, None)


async def test_lookups_of_one_address_do_not_delay_others(
    busy: Busy, keeper: RequestAdmission
) -> None:
    """Only a few of one address run at the same time; requests of another address pass them."""
    crowd = [
        asyncio.create_task(come(keeper, CROWD)) for _ in range(MAX_ADMISSIONS_PER_ADDRESS * 3)
    ]
    await busy.full.wait()
    await come(keeper, OTHER)
    assert busy.asked == MAX_ADMISSIONS_PER_ADDRESS
    busy.open.set()
    await asyncio.gather(*crowd)
    assert busy.asked == MAX_ADMISSIONS_PER_ADDRESS * 3


async def test_a_lookup_that_waits_too_long_is_rejected(
    busy: Busy, keeper: RequestAdmission, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is that of too many requests of its address."""
    monkeypatch.setattr(gatekeeper, "MAX_TURN_WAIT_SECONDS", 0)
    crowd = [asyncio.create_task(come(keeper, CROWD)) for _ in range(MAX_ADMISSIONS_PER_ADDRESS)]
    await busy.full.wait()
    with pytest.raises(TooManyRequests, match="this address"):
        await come(keeper, CROWD)
    busy.open.set()
    await asyncio.gather(*crowd)
