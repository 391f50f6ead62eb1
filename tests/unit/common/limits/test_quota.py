"""How many documents a tenant may still add."""

import asyncio
from typing import Any

import pytest

from libs.common.limits.quota import Quota
from tests.limits import limits_of


class Three:
    """A collection with three documents of every tenant."""

    async def count_documents(self, query: dict[str, Any], limit: int) -> int:
        return min(3, limit)


@pytest.mark.parametrize(("wanted", "beyond"), [(0, 0), (2, 0), (3, 1), (9, 7)])
async def test_a_limit_can_be_checked_without_counting(wanted, beyond):
    """The check returns the error and counts nothing."""
    quota = Quota(Three(), limits_of(devices=5), "devices")
    for _ in range(2):
        found, error = await quota.find_excess("t", wanted)
        assert found == beyond
        assert "5 of these" in str(error)


async def test_a_slow_count_of_one_tenant_does_not_delay_others():
    """Ten million documents take seconds."""

    class Slow(Three):
        async def count_documents(self, query: dict[str, Any], limit: int) -> int:
            if query["tenant"] == "large":
                await asyncio.Event().wait()
            return await super().count_documents(query, limit)

    quota = Quota(Slow(), limits_of(devices=5), "devices")
    counting = asyncio.ensure_future(quota.reserve("large"))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await quota.reserve("small")
    counting.cancel()
