"""The oracle itself: without an attack it has nothing to say."""

import pytest

from tests.adversary.oracle import Oracle

pytestmark = pytest.mark.xdist_group("platform")


async def test_peace(oracle: Oracle) -> None:
    """While nobody attacks, everybody is served and nothing of theirs changes by itself."""
    for _ in range(2):
        await oracle.judge()
