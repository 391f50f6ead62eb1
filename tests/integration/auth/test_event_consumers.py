"""Consumers on `EVENTS` end with the applications that they belong to."""

from nats.js.api import ConsumerConfig

from libs.common.contracts.auth import ApplicationRef, Done
from services.auth.applications.event_consumers import AbandonedConsumerSweep
from services.auth.applications.store import ApplicationStore


async def test_the_consumer_of_an_application_ends_with_it(auth):
    """The consumer of an application without events is deleted too; others stay."""
    kept = await auth.application("kept", events=True)
    gone = await auth.application("gone", events=True)
    deaf = await auth.application("deaf", events=False)
    for name in ("a-service", kept.client_id, gone.client_id, deaf.client_id):
        await auth.bus.js.add_consumer("EVENTS", ConsumerConfig(name=name, durable_name=name))

    await auth.call("delete_application", ApplicationRef(gone.application_id), Done)
    bus = await auth.door.bus("auth")
    await AbandonedConsumerSweep(bus, ApplicationStore(auth.mongo.database)).delete_abandoned()
    await bus.drain()

    left = {one.name for one in await auth.bus.js.consumers_info("EVENTS")}
    assert left & {"a-service", kept.client_id, gone.client_id, deaf.client_id} == {
        "a-service",
        kept.client_id,
    }
