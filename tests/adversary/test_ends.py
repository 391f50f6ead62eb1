"""What must end ends: logins that were taken away, and what they leave."""

from collections.abc import Awaitable, Callable

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig

from tests.adversary.oracle import Oracle
from tests.adversary.town import Home, make_application
from tests.e2e.callers import Application
from tests.e2e.waiting import until

pytestmark = pytest.mark.xdist_group("platform")


async def listener(application: Application) -> nats.NATS:
    """Return a connection of an application that does not reconnect."""
    return await nats.connect(
        f"nats://127.0.0.1:{application.platform.nats_port}",
        user=application.client_id,
        password=application.client_secret,
        inbox_prefix=f"_INBOX.app.{application.client_id}".encode(),
        allow_reconnect=False,
    )


async def delete(application: Application, home: Home) -> None:
    """Delete an application as the operator does."""
    gone = {"tenant": home.tenant, "applicationId": application.id}
    await home.platform.ask("rpc.auth.delete_application", gone)
    await application.close()


def ended(client: nats.NATS) -> Callable[[], Awaitable[bool]]:
    """Return whether a connection is closed."""

    async def closed() -> bool:
        return client.is_closed

    return closed


async def test_the_connections_of_a_deleted_application_end(oracle: Oracle) -> None:
    """With an application its connections go, and nobody else's."""
    home = oracle.town.mallory
    application = await make_application(home.platform, home.tenant)
    client = await listener(application)
    await delete(application, home)
    await until(ended(client))
    await oracle.judge()


@pytest.mark.slow
async def test_the_consumer_of_a_deleted_application_ends(oracle: Oracle) -> None:
    """A check each hour, and at the start of a process, removes its durable consumer."""
    home = oracle.town.mallory
    application = await make_application(home.platform, home.tenant)
    client = await listener(application)
    config = ConsumerConfig(
        name=application.client_id,
        durable_name=application.client_id,
        filter_subject=f"event.{home.tenant}.>",
        ack_policy=AckPolicy.EXPLICIT,
    )
    await client.jetstream().add_consumer("EVENTS", config)
    await delete(application, home)
    old = await home.platform.kill("auth")
    await home.platform.restarted("auth", old)

    async def gone() -> bool:
        async with home.platform.admin() as admin:
            found = await admin.jetstream().consumers_info("EVENTS")
        return application.client_id not in {entry.name for entry in found}

    await until(gone)
    await oracle.settle()


@pytest.mark.slow
async def test_a_connection_ends_though_nobody_was_there_to_close_it(oracle: Oracle) -> None:
    """A secret changes while the process that closes connections is dead."""
    home = oracle.town.mallory
    application = await make_application(home.platform, home.tenant)
    client = await listener(application)
    old = await home.platform.kill("device")
    changed = {"tenant": home.tenant, "applicationId": application.id}
    await home.platform.ask("rpc.auth.rotate_application_secret", changed)
    await home.platform.restarted("device", old)
    await until(ended(client))
    await application.close()
    await oracle.settle()
