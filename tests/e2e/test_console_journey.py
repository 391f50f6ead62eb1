"""An existing console's order of calls, on the platform with embedded servers."""

import pytest

from tests.e2e.journey import browsing, travel
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("platform")


async def test_the_whole_journey(platform: Platform) -> None:
    """A console registers, adds a device, shows live data and history, deletes all."""
    async with browsing(platform) as browser:
        await travel(browser)
