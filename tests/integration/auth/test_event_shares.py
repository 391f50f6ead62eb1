"""Shares of `EVENTS`: a noisy tenant loses its own oldest events, and nobody else loses any."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import AckPolicy, ConsumerConfig

from libs.common.bus import EVENTS, Bus, OutgoingMessage, publish_all
from libs.common.bus.stored_messages import count_messages
from libs.common.bus.streams import EVENT_PARTITION_NAMES, set_event_partitions
from libs.common.bus.subjects import device_event
from libs.common.contracts.limits import SetLimits, TenantLimits
from services.auth.accounts.tenants import TenantStore
from services.auth.tenants import event_shares
from services.auth.tenants.event_shares import PURGE_END, PURGE_START, EventShareEnforcer

PARTITIONS = EVENT_PARTITION_NAMES[:2]
MAX_BYTES = 4 * 1024**2
"""Bytes of the stream here."""


@pytest.fixture(autouse=True)
def one_look_of_its_own(monkeypatch):
    """The service looks once, at its start: shares are enforced when a test does."""
    monkeypatch.setattr(event_shares, "CHECK_SECONDS", 3600)


@pytest_asyncio.fixture
async def bus(auth) -> AsyncIterator[Bus]:
    """The bus as `auth` may use it, with a small and empty stream of events."""
    usual = (await auth.bus.js.stream_info(EVENTS)).config
    await auth.bus.js.purge_stream(EVENTS)
    await auth.bus.js.update_stream(usual.evolve(max_bytes=MAX_BYTES))
    for tenant in ("quiet", "noisy"):
        await auth.tenant(tenant)
    bus = await auth.door.bus("auth")
    yield bus
    await bus.drain()
    await auth.bus.js.update_stream(usual)


async def publish(auth: Any, tenant: str, number: int, size: int, first: int = 0) -> None:
    events = [
        OutgoingMessage(device_event(tenant, one % 7, "reported"), b"%0*d" % (size, one))
        for one in range(first, first + number)
    ]
    await publish_all(auth.bus, events)


async def read_all(
    auth: Any, name: str, prefix: str = "event.", patience: float = 0.5
) -> list[int]:
    """The numbers of the events below a prefix that a durable consumer has yet to read."""
    pulled = await auth.bus.js.pull_subscribe_bind(name, EVENTS)
    found: list[int] = []
    try:
        while messages := await pulled.fetch(500, timeout=patience):
            found += [int(one.data[-9:]) for one in messages if one.subject.startswith(prefix)]
            for message in messages:
                await message.ack()
    except TimeoutError:
        return found
    finally:
        await pulled.unsubscribe()
    return found


def shares_of(auth: Any, bus: Bus) -> EventShareEnforcer:
    return EventShareEnforcer(bus, TenantStore(auth.mongo.database))


async def held(auth: Any) -> int:
    return (await auth.bus.js.stream_info(EVENTS)).state.bytes


@pytest.mark.parametrize("filters", ["event.*.device.*.reported", "event.>"])
async def test_a_reader_of_all_tenants_loses_nothing_of_a_quiet_one(auth, bus: Bus, filters: str):
    """It loses neither unread events nor unacknowledged ones."""
    config = ConsumerConfig(
        name="all",
        durable_name="all",
        filter_subject=filters,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=1,
    )
    await auth.bus.js.purge_stream(EVENTS)
    await auth.bus.js.add_consumer(EVENTS, config)
    for first in range(0, 200, 20):
        await publish(auth, "quiet", 20, 400, first=first)
        await publish(auth, "noisy", 400, 800, first=first)
    assert await held(auth) > PURGE_START * MAX_BYTES
    pulled = await auth.bus.js.pull_subscribe_bind("all", EVENTS)
    for _ in range(2):
        assert await pulled.fetch(500, timeout=5)
    await pulled.unsubscribe()

    await shares_of(auth, bus).enforce()

    assert await held(auth) <= PURGE_START * MAX_BYTES
    found = await read_all(auth, "all", "event.quiet.", patience=3)
    assert sorted(set(found)) == list(range(200))
    await auth.bus.js.delete_consumer(EVENTS, "all")


@pytest.mark.parametrize("size", [200, 20_000])
async def test_a_noisy_tenant_loses_its_own_oldest_events(auth, bus: Bus, size: int):
    """Readers of a quiet tenant find all of its events; the noisy one finds its newest."""
    for name in ("quiet", "noisy"):
        config = ConsumerConfig(
            name=name,
            durable_name=name,
            filter_subject=f"event.{name}.device.>",
            ack_policy=AckPolicy.EXPLICIT,
        )
        await auth.bus.js.add_consumer(EVENTS, config)
    await publish(auth, "quiet", 200, 400)
    number, some = 0, MAX_BYTES // 50 // size
    while await held(auth) < PURGE_START * MAX_BYTES:
        await publish(auth, "noisy", some, size, first=number)
        number += some
    await publish(auth, "quiet", 200, 400, first=200)

    for _ in range(3):
        await shares_of(auth, bus).enforce()

    assert PURGE_END * MAX_BYTES * 0.8 < await held(auth) <= PURGE_START * MAX_BYTES
    assert await read_all(auth, "quiet") == list(range(400))
    left = await read_all(auth, "noisy")
    assert 0 < len(left) < number
    assert left == list(range(number - len(left), number))
    for name in ("quiet", "noisy"):
        await auth.bus.js.delete_consumer(EVENTS, name)

    store = TenantStore(auth.mongo.database)
    purge = await store.get_event_purge("noisy")
    assert purge is not None
    assert purge["events"] - (number - len(left)) in (0, 1)  # the event of the tenant itself
    assert await store.get_event_purge("quiet") is None


async def test_a_partition_keeps_its_part_of_the_permitted_bytes(auth, bus: Bus):
    """Each of two partitions retains at most half of a tenant's limit."""
    await auth.call(
        "set_limits", SetLimits("default", {"retainedEventBytes": 300_000}), TenantLimits
    )
    await set_event_partitions(bus.js, 1, 2)
    auth.bus.forget_partitions()
    try:
        shares = shares_of(auth, bus)
        await shares._enforce_after_change()
        await publish(auth, "default", 1000, 1000)

        await shares._enforce_after_change()

        for name in PARTITIONS:
            state = (await auth.bus.js.stream_info(name)).state
            assert 0 < state.bytes < 200_000
    finally:
        await set_event_partitions(bus.js, 1, 1)
        for name in PARTITIONS:
            await auth.bus.js.delete_stream(name)
        auth.bus.forget_partitions()


async def test_a_tenant_keeps_the_bytes_that_the_operator_permits(auth, bus: Bus):
    """Its own limit holds while the stream has room, and the tenant's page names the purge."""
    await auth.call(
        "set_limits", SetLimits("default", {"retainedEventBytes": 300_000}), TenantLimits
    )
    await publish(auth, "default", 1000, 1000)
    await publish(auth, "quiet", 1000, 1000)

    await shares_of(auth, bus).enforce()

    assert 200 < await count_messages(bus, EVENTS, "event.default.>") < 320
    assert await count_messages(bus, EVENTS, "event.quiet.>") >= 1000
    page = await auth.done("GET", "/tenant/limits")
    assert page["event_purge"]["share"] == 300_000
    assert page["event_purge"]["events"] > 600


async def test_auth_may_purge_events_and_no_other_stream(auth, bus: Bus):
    """nats-server does not answer a purge that the user may not ask for."""
    await publish(auth, "quiet", 3, 10)
    await bus.js.purge_stream(EVENTS, subject="event.quiet.device.>", keep=1)
    assert await count_messages(bus, EVENTS, "event.quiet.device.>") == 1
    for stream in ("DEAD", "UPLINK"):
        with pytest.raises(NatsTimeout):
            await bus.client.request(f"$JS.API.STREAM.PURGE.{stream}", timeout=0.3)
