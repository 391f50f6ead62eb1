"""Fixtures of the contract tests: one running platform, and applications that call it."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

from tests.contract.browser import Browser
from tests.contract.cast import Cast, make_cast
from tests.contract.client import MODEL, PRODUCT, Api, new_sn
from tests.contract.console import Console, new_admin
from tests.contract.hall import Hall, make_hall
from tests.contract.ping import Ping, hosted
from tests.e2e.platform import Platform, shared


@pytest.fixture(scope="session")
def platform(request: pytest.FixtureRequest) -> Platform:
    """The running platform of this pytest process."""
    return shared(request.session)


async def _application(platform: Platform, name: str) -> Api:
    """Make an application; an application of a name that is taken would be refused."""
    made = await platform.make_application(name, events=True)
    api = Api(platform.base_url, made["clientId"], made["clientSecret"], int(made["applicationId"]))
    return await api.log_in()


@pytest.fixture(scope="session")
async def api(platform: Platform) -> AsyncIterator[Api]:
    """An application, with the tests' products imported."""
    client = await _application(platform, "contract")
    await client.done("PUT", f"/products/{MODEL}", PRODUCT)
    yield client
    await client.close()


@pytest.fixture(scope="session")
async def foreign(platform: Platform, api: Api) -> AsyncIterator[Api]:
    """Another application of the same tenant."""
    client = await _application(platform, "foreign")
    yield client
    await client.close()


@pytest.fixture
async def alone(platform: Platform, api: Api) -> AsyncIterator[Api]:
    """An application of one test's own, which has no devices yet."""
    client = await _application(platform, f"alone {uuid4().hex[:8]}")
    yield client
    await client.close()


@dataclass
class Thing:
    """A device of the tests' product that can speak."""

    id: int
    sn: str
    key: str


@pytest.fixture
async def thing(api: Api) -> Thing:
    """A device that was added a moment ago, with its key."""
    sn = new_sn()
    identity = await api.add(sn)
    issued = await api.done("POST", f"/devices/{identity}/credentials")
    return Thing(identity, sn, issued["key"])


@pytest.fixture
async def warming(api: Api, thing: Thing) -> AsyncIterator[Thing]:
    """A device that reports another temperature every second."""

    async def report() -> None:
        for number in itertools.count():
            await api.report(thing.sn, thing.key, {"properties": {"temperature": 20 + number % 10}})
            await asyncio.sleep(1)

    reporting = asyncio.ensure_future(report())
    yield thing
    reporting.cancel()


@pytest.fixture(scope="session")
async def admin(platform: Platform) -> AsyncIterator[Console]:
    """The super-admin of the first tenant, whom the launcher made."""
    ready = platform.ready
    client = ready.console_client.client_id, ready.console_client.client_secret
    console = Console(platform.base_url, client, ready.user.email, ready.user.password)
    yield await console.log_in()
    await console.close()


@pytest.fixture(scope="session")
async def other_admin(platform: Platform) -> AsyncIterator[Console]:
    """The super-admin of another tenant, who registered there."""
    _, console = await new_admin(platform)
    yield console
    await console.close()


@pytest.fixture(scope="session")
async def hall(admin: Console, api: Api) -> AsyncIterator[Hall]:
    """A device on the console, which has reported; the tests do not delete it."""
    made = await make_hall(admin, api)
    yield made
    for person in made.people:
        await person.close()


@pytest.fixture
async def browser(platform: Platform, admin: Console) -> AsyncIterator[Browser]:
    """The console, signed in as super-admin."""
    browser = await Browser(platform.base_url).sign_in(admin)
    yield browser
    await browser.http.aclose()


@pytest.fixture(scope="session")
async def ping(platform: Platform) -> AsyncIterator[Ping]:
    """An integration from outside, which runs during the tests."""
    made = Ping()
    async with hosted(platform, made):
        yield made


@pytest.fixture(scope="session")
async def cast(api: Api, admin: Console, other_admin: Console) -> AsyncIterator[Cast]:
    """Callers of every sort."""
    made = await make_cast(api, admin, other_admin)
    yield made
    await made.powerless.close()
    await made.holder.close()
