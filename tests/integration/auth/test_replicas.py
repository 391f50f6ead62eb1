"""Two replicas of the service: a change on one is seen by the next request to the other."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest_asyncio
from opentelemetry.sdk.metrics import MeterProvider

from libs.common.bus import Bus
from libs.common.contracts.access import UserRef
from libs.common.identity.access import AccessVersions, access_version_key
from libs.common.store.mongo import Mongo
from libs.common.store.redis import connect_redis
from libs.common.telemetry import Telemetry
from services.auth.accounts import Accounts
from services.auth.accounts.roles import INITIAL_MENUS
from services.auth.app import build_app
from services.auth.grants.access import AccessService
from tests.integration.auth.conftest import Auth
from tests.integration.auth.rights import access_of, create_role, grants_of, store_user
from tests.lending import lent
from tests.lifespan import running


@contextlib.asynccontextmanager
async def another(auth: Auth, servers: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A replica with clients of its own, on the same servers."""
    async with contextlib.AsyncExitStack() as stack:
        mongo = Mongo(servers.mongo_url, auth.settings.mongo_database)
        stack.push_async_callback(mongo.close)
        redis = connect_redis(servers.redis_url)
        stack.push_async_callback(redis.aclose)
        bus = await Bus.connect(
            auth.door.url, user="auth", password="secret-auth", name="auth-2", stream_replicas=1
        )
        stack.push_async_callback(bus.drain)
        parts = auth.settings, mongo, redis, bus, Telemetry(None, MeterProvider())
        app = stack.enter_context(lent(lambda: build_app(*parts)))
        await stack.enter_async_context(running(app))
        for _ in range(2):
            await bus.client.flush()
        yield await stack.enter_async_context(
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://auth-2")
        )


@pytest_asyncio.fixture
async def second(auth, servers) -> AsyncIterator[Auth]:
    """The same platform, seen through the other replica's HTTP."""
    async with another(auth, servers) as http:
        yield Auth(
            http,
            auth.app,
            auth.rpc,
            auth.bus,
            auth.mongo,
            auth.redis,
            auth.door,
            auth.signer,
            auth.settings,
        )


async def test_a_change_on_one_is_there_on_the_other(auth, second):
    """Whichever of the two answers, and again after it was taken back."""
    role_id = await create_role(auth)
    user_id = await store_user(auth, 7, int(role_id))
    granted = {"resources": [{"id": "5", "type": "DEVICE"}]}
    role = f"/user/roles/{role_id}"

    for here, there in ((auth, second), (second, auth)):
        await here.done("POST", f"{role}/associate-menu", {"menu_ids": ["2001"]})
        await here.done("POST", f"{role}/associate-resource", granted)
        assert len(await there.done("GET", f"{role}/menus")) == 1
        for _ in range(4):  # either replica answers
            assert (await access_of(auth, user_id)).functions == {"device.view"}
            assert (await grants_of(auth, user_id)).devices == {5}

        await here.done("POST", f"{role}/associate-menu", {"menu_ids": []})
        await here.done("POST", f"{role}/disassociate-resource", granted)
        for _ in range(4):
            assert (await access_of(auth, user_id)).functions == frozenset()
            assert (await grants_of(auth, user_id)).devices == frozenset()


async def test_the_version_stands_in_redis_when_a_change_is_answered(auth, second):
    """The gateway reads it with each token, so it discards older permissions."""
    role_id = await create_role(auth)
    user_id = await store_user(auth, 7, int(role_id))

    for here in (auth, second, auth):
        await here.done("POST", f"/user/roles/{role_id}/associate-menu", {"menu_ids": ["2001"]})
        stands = int(await auth.redis.get(access_version_key("default")))
        assert (await access_of(auth, user_id)).version == stands


async def test_unique_names_and_the_last_super_admin_hold_across_replicas(auth, second):
    """Two replicas reject together what one replica rejects."""
    users = [await store_user(auth, user_id, 1) for user_id in (7, 8)]
    path = "/user/roles/1/disassociate-user"

    taken = await asyncio.gather(
        auth.ask("POST", path, {"user_ids": users[:1]}),
        second.ask("POST", path, {"user_ids": users[1:]}),
    )
    named = await asyncio.gather(
        auth.ask("POST", "/user/roles", {"name": "ops"}),
        second.ask("POST", "/user/roles", {"name": "ops"}),
    )

    assert sorted(answer.status_code for answer in taken) == [200, 409]
    assert sorted(answer.status_code for answer in named) == [200, 409]


async def test_replicas_that_start_together_make_one_default_tenant(auth, servers):
    """Nobody fails, and nothing is seeded twice."""
    for name in ("tenants", "roles", "menus"):
        await auth.mongo.database[name].delete_many({})

    async with contextlib.AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(another(auth, servers)) for _ in range(3)))

    for name, count in (("tenants", 1), ("roles", 1), ("menus", len(INITIAL_MENUS))):
        assert await auth.mongo.database[name].count_documents({}) == count


async def test_an_answer_is_never_older_than_its_version(auth, second):
    """However reads and changes meet: version and content are of one moment.

    Device n is granted by the n-th change, so that the content tells which version it is of.
    """
    role_id = await create_role(auth)
    user_id = int(await store_user(auth, 7, int(role_id)))
    access = AccessService(auth.mongo, Accounts(auth.mongo.direct), AccessVersions(auth.redis))
    user = UserRef("default", user_id)
    first = (await access.get_grants(user)).version
    done = asyncio.Event()

    async def change() -> None:
        for at in range(1, 31):
            here = auth if at % 2 else second
            body = {"resources": [{"id": at, "type": "DEVICE"}]}
            await here.done("POST", f"/user/roles/{role_id}/associate-resource", body)
        done.set()

    async def read() -> int:
        reads = 0
        while not done.is_set():
            held = await access.get_grants(user)
            assert held.devices == frozenset(range(1, held.version - first + 1))
            reads += 1
        return reads

    _, *reads = await asyncio.gather(change(), read(), read())

    assert min(reads) > 5
