"""Fixtures of the adversary suite: a town on a running platform, and who judges."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.adversary.ears import listening
from tests.adversary.oracle import Oracle
from tests.adversary.records import connect_mongo
from tests.adversary.town import Town, make_town
from tests.e2e.platform import Platform, shared


@pytest.fixture(scope="session")
def platform(request: pytest.FixtureRequest) -> Platform:
    """Return the running platform of this pytest process."""
    return shared(request.session)


@pytest.fixture(scope="session")
async def town(platform: Platform) -> AsyncIterator[Town]:
    """Mallory, Nora and Alice."""
    made = await make_town(platform)
    yield made
    await made.close()


@pytest.fixture(scope="session")
async def oracle(platform: Platform, town: Town) -> AsyncIterator[Oracle]:
    """Return the oracle, after it has seen everything work."""
    async with AsyncExitStack() as stack:
        ears = {
            home.application.client_id: await stack.enter_async_context(listening(home))
            for home in town.others
        }
        admin = await stack.enter_async_context(platform.admin())
        mongo = stack.enter_context(connect_mongo(platform))
        judge = Oracle(town, ears, admin, mongo)
        await judge.settle()
        yield judge
