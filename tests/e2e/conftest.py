"""Fixtures of the end-to-end tests: one running platform, and fresh devices on it."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.e2e.callers import Application, Console
from tests.e2e.devices import Device
from tests.e2e.listening import Listener, hearing_dead, listening
from tests.e2e.platform import MODEL, PRODUCT, Platform, shared

AddDevice = Callable[..., Awaitable[Device]]


@pytest.fixture(scope="session")
def platform(request: pytest.FixtureRequest) -> Platform:
    """Return the running platform of this pytest process."""
    return shared(request.session)


@pytest.fixture(scope="session")
async def application(platform: Platform) -> AsyncIterator[Application]:
    """Return the first application, with the tests' product imported."""
    client = platform.application()
    await client.data("PUT", f"/products/{MODEL}", PRODUCT)
    yield client
    await client.close()


@pytest.fixture(scope="session")
async def console(platform: Platform) -> AsyncIterator[Console]:
    """Return the first user of the console, a super-admin."""
    client = platform.console()
    yield client
    await client.close()


@pytest.fixture
async def other_application(
    platform: Platform, application: Application
) -> AsyncIterator[Application]:
    """Return an application for one test."""
    made = await platform.make_application("another")
    client = platform.application(made["clientId"], made["clientSecret"])
    client.id = made["applicationId"]
    yield client
    await client.close()
    await platform.delete_application(made["applicationId"])


@pytest.fixture
async def device(application: Application) -> Device:
    """Return a new device."""
    return await application.add_device()


@pytest.fixture
async def events(platform: Platform, application: Application) -> AsyncIterator[Listener]:
    """Return the events that the application receives on NATS during the test."""
    async with listening(platform, application) as listener:
        yield listener


@pytest.fixture
async def dead(platform: Platform) -> AsyncIterator[Listener]:
    """Return the messages in `DEAD` during the test."""
    async with hearing_dead(platform) as listener:
        yield listener
