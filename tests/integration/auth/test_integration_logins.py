"""Logins of external integrations: made by the operator, and what NATS lets them do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from deploy.platform.nats_grants import RELAY_USER
from libs.common.bus import Bus, RpcClient, RpcServer
from libs.common.contracts.auth import Done, IntegrationLogins, IntegrationSecret
from libs.common.contracts.integrations import (
    Acknowledged,
    AddDevice,
    Manifest,
    NewDevice,
    announce_subject,
    device_subject,
    operation_subject,
)
from libs.common.errors import Conflict, InvalidInput, NotFound, TooManyRequests
from libs.common.integrations import Integration, IntegrationHost
from libs.common.integrations.host import IntegrationThings
from services.gateway.relay.rules import RejectedError
from tests.integration.auth.conftest import Auth
from tests.outside import relaying

WAIT = 5


class Lamps(Integration):
    manifest = Manifest(id="lamps", name="Lamps")

    async def add_device(self, wanted: AddDevice) -> NewDevice:
        return NewDevice(identifier=wanted.params["serial"])


@pytest_asyncio.fixture
async def login(auth: Auth) -> IntegrationSecret:
    return await auth.call("create_integration_login", {"integration": "lamps"}, IntegrationSecret)


@contextlib.asynccontextmanager
async def connected(
    auth: Auth, login: IntegrationSecret
) -> AsyncIterator[tuple[Client, asyncio.Queue]]:
    """Connect as the integration; collect the errors of the server."""
    refusals: asyncio.Queue[str] = asyncio.Queue()

    async def refused(error: Exception) -> None:
        refusals.put_nowait(str(error).lower())

    client = await nats.connect(
        auth.door.url,
        user=login.user,
        password=login.secret,
        inbox_prefix=f"_INBOX.{login.user}".encode(),
        allow_reconnect=False,
        error_cb=refused,
    )
    try:
        yield client, refusals
    finally:
        await client.close()


async def refuses(auth: Auth, user: str, secret: str) -> bool:
    try:
        client = await nats.connect(
            auth.door.url, user=user, password=secret, allow_reconnect=False, connect_timeout=WAIT
        )
    except nats.errors.Error:
        return True
    await client.close()
    return False


async def test_the_operator_makes_lists_and_ends_logins(auth: Auth, login):
    """The secret is shown once and stored as a hash. Each step is audited."""
    assert login.user == "integration.lamps"
    (stored,) = await auth.mongo.database["integration_logins"].find().to_list(None)
    assert login.secret not in str(stored)
    listed = (await auth.call("list_integration_logins", {}, IntegrationLogins)).logins
    assert [(one.integration, one.user) for one in listed] == [("lamps", "integration.lamps")]

    rotated = await auth.call(
        "rotate_integration_secret", {"integration": "lamps"}, IntegrationSecret
    )
    assert await refuses(auth, login.user, login.secret)
    assert not await refuses(auth, login.user, rotated.secret)

    await auth.call("delete_integration_login", {"integration": "lamps"}, Done)
    assert await refuses(auth, login.user, rotated.secret)
    entry = await auth.entry(object_type="integration_login", action="deleted")
    assert entry["object"]["id"] == "lamps"
    assert entry["actor"]["name"] == "operator"


async def test_an_id_that_is_taken_gets_no_login(auth: Auth, login, subtests: pytest.Subtests):
    """A second login of an integration is a conflict, as is one of a built-in one."""
    for taken in ["lamps", "direct", "system", "simulator", "openapi-client"]:
        with subtests.test(str(taken)), pytest.raises(Conflict, match=taken):
            await auth.call("create_integration_login", {"integration": taken}, IntegrationSecret)


async def test_an_id_is_one_word(auth: Auth, subtests: pytest.Subtests):
    """Anything that would be more in a subject is refused by name."""
    for bad in ["", "Lamps", "a.b", "*", ">", "a b", "1st", "a" * 64]:
        with subtests.test(str(bad)), pytest.raises(InvalidInput, match="integration"):
            await auth.call("create_integration_login", {"integration": bad}, IntegrationSecret)


async def test_an_integration_without_a_login_is_not_found(auth: Auth, subtests: pytest.Subtests):
    """Neither a rotation nor a deletion finds it."""
    for operation in ["rotate_integration_secret", "delete_integration_login"]:
        with subtests.test(str(operation)), pytest.raises(NotFound, match="doors"):
            await auth.call(operation, {"integration": "doors"}, Done)


async def test_the_sdk_runs_with_the_login(auth: Auth, login):
    """It announces itself and answers; a service that asks gets the answer."""
    heard: list[str] = []
    rpc = RpcServer(auth.bus, "management")

    async def announce(who: str, manifest: Manifest) -> Acknowledged:
        heard.append(f"{who} {manifest.name}")
        return Acknowledged()

    rpc.offer_each("announce_integration", Manifest, announce)
    await rpc.start()
    await auth.bus.client.flush()
    bus = await Bus.connect(auth.door.url, user=login.user, password=login.secret, name="lamps")
    async with relaying(auth.door.url, f"secret-{RELAY_USER}"), IntegrationHost(bus, Lamps()):
        await bus.client.flush()
        wanted = AddDevice(tenant="default", user_id=1, name="Hall", params={"serial": "L1"})
        subject = operation_subject("lamps", "add_device")
        made = await RpcClient(auth.bus).call(subject, wanted, NewDevice)
    await rpc.stop()
    await bus.drain()

    assert heard == ["lamps Lamps"]
    assert made.identifier == "L1"


async def test_a_request_beyond_the_rate_fails(auth: Auth, login, monkeypatch):
    """The SDK raises the error of the gateway, so it never takes the report for stored."""

    def reject(*_: object) -> None:
        raise RejectedError("more than 200 requests per second", 429)

    async with contextlib.AsyncExitStack() as stack:
        relay = await stack.enter_async_context(relaying(auth.door.url, f"secret-{RELAY_USER}"))
        monkeypatch.setattr(relay._quota, "count_or_reject_message", reject)
        bus = await Bus.connect(auth.door.url, user=login.user, password=login.secret, name="lamps")
        stack.push_async_callback(bus.drain)
        things = IntegrationThings(RpcClient(bus), "lamps")
        with pytest.raises(TooManyRequests, match="more than 200 requests"):
            await things.report("default", "L1", {"on": True})


async def test_it_may_announce_and_tell_of_its_own(auth: Auth, login, subtests: pytest.Subtests):
    """The request is allowed, so it fails only because no service answers."""
    for subject in [
        announce_subject("lamps"),
        *(
            device_subject("lamps", one)
            for one in (
                "report",
                "event",
                "reply",
                "own_report",
                "list_devices",
                "get_tsl",
                "own_values",
            )
        ),
    ]:
        with subtests.test(str(subject)):
            async with connected(auth, login) as (client, refusals):
                with pytest.raises(NoRespondersError):
                    await client.request(subject, b"{}", timeout=WAIT)
                assert refusals.empty()


async def test_it_says_nothing_else(auth: Auth, login, subtests: pytest.Subtests):
    """Nothing for another integration, nothing as a device, a service or the system."""
    for subject in [
        announce_subject("doors"),
        device_subject("doors", "report"),
        device_subject("direct", "reply"),
        device_subject("doors", "list_devices"),
        device_subject("lamps", "put_device"),
        "rpc.device.report",
        "rpc.device.count_devices",
        "rpc.device.close_connections",
        "rpc.management.get_integrations",
        "rpc.auth.get_grants",
        "rpc.integration.doors.add_device",
        "rpc.integration.lamps.add_device",
        "thing.L1.up.report",
        "thing.L1.down.command",
        "event.default.device.1.reported",
        "_INBOX.device.abc",
        "$JS.API.STREAM.INFO.EVENTS",
        "$SYS.REQ.USER.AUTH",
    ]:
        with subtests.test(str(subject)):
            async with connected(auth, login) as (client, refusals):
                await client.publish(subject, b"{}")
                await client.flush()
                assert "publish" in await asyncio.wait_for(refusals.get(), WAIT)


async def test_an_integration_cannot_read_other_subjects(
    auth: Auth, login, subtests: pytest.Subtests
):
    """It receives no requests or responses of others, and no events."""
    for subject in [
        "rpc.integration.doors.>",
        "rpc.integration.doors.add_device",
        "rpc.integration.>",
        "rpc.>",
        "event.default.>",
        "thing.*.up.>",
        "$SRV.>",
        "_INBOX.>",
        "_INBOX.integration.doors.>",
        "_INBOX.management.>",
        ">",
    ]:
        with subtests.test(str(subject)):
            async with connected(auth, login) as (client, refusals):
                await client.subscribe(subject)
                await client.flush()
                assert "subscription" in await asyncio.wait_for(refusals.get(), WAIT)


async def answered(auth: Auth, subject: str) -> Msg:
    """Ask until the other account knows that somebody listens."""
    async with asyncio.timeout(WAIT):
        while True:
            try:
                return await auth.bus.client.request(subject, timeout=WAIT)
            except NoRespondersError:
                await asyncio.sleep(0.01)


async def test_it_answers_a_request_once(auth: Auth, login):
    """The right to reply ends with the reply."""
    async with connected(auth, login) as (client, refusals):

        async def answer_twice(message) -> None:
            await message.respond(b"first")
            await message.respond(b"second")

        await client.subscribe("rpc.integration.lamps.call", cb=answer_twice)
        await client.flush()
        assert (await answered(auth, "rpc.integration.lamps.call")).data == b"first"
        assert "publish" in await asyncio.wait_for(refusals.get(), WAIT)
