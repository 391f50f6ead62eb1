"""Who is told of alarms, and when, with fakes of the store and of the other side."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

import msgspec
import pytest

from libs.common.contracts.access import Access
from libs.common.contracts.events import AlarmChanged, DeviceProfile
from libs.common.contracts.names import DescribedDevice, DescribedDevices
from libs.common.errors import Unavailable
from libs.common.identity.functions import Function
from services.workflow.notifications.events import store_notices
from services.workflow.notifications.sender import MAX_CONCURRENT_DELIVERIES, NotificationSender
from services.workflow.notifications.store import (
    AlarmSummary,
    ChannelFailures,
    Notice,
    Notifications,
    Subscriber,
    WebhookChannel,
)

NOISY, QUIET = "noisy", "quiet"
TOLD = AlarmSummary(
    change="raised", alarm_id=1, severity="MAJOR", content="hot", raised_at=1, device_id=5,
    device_name="oven",
)  # fmt: skip


def subscriber(tenant: str, user: int) -> Subscriber:
    hook = WebhookChannel(url=f"https://{tenant}.example/{user}")
    settings = Notifications(webhook=hook)
    return Subscriber(id=user, tenant=tenant, login="a@example.com", settings=settings)


class Store:
    """Notices and claims in memory; keeps the batches that were added."""

    def __init__(self, subscribers: Iterable[Subscriber] = ()) -> None:
        self.subscribers = {one.id: one for one in subscribers}
        self.ready = set(self.subscribers)
        self.ended: dict[int, dict[str, Any]] = {}
        self.added: list[Sequence[Notice]] = []

    async def list_enabled(self, tenant: str) -> list[Subscriber]:
        return [one for one in self.subscribers.values() if one.tenant == tenant]

    async def add_notices(self, notices: Sequence[Notice]) -> None:
        self.added.append(notices)

    async def list_due(self, now: int):
        return [(self.subscribers[user].tenant, user, "WEBHOOK") for user in sorted(self.ready)]

    async def claim_delivery(
        self, user: int, channel: str, now: int, until: int
    ) -> Subscriber | None:
        if user not in self.ready:
            return None
        self.ready.discard(user)
        return self.subscribers[user]

    async def list_waiting(self, user: int, channel: str) -> list[Notice]:
        return [
            Notice(
                id=f"e.{user}.{channel}", tenant="t", user=user, channel="WEBHOOK", due=1,
                at=datetime.now(UTC), alarm=TOLD,
            )
        ]  # fmt: skip

    async def delete_notices(self, notices: Sequence[Notice]) -> None:
        pass

    async def finish_delivery(self, user: int, channel: str, **more: Any) -> None:
        self.ended[user] = more


class Outside:
    """Fake of settings, `auth`, `device`, grants and webhooks; those of NOISY hang."""

    def __init__(self) -> None:
        self.hanging = asyncio.Event()
        self.sent: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.broken = False
        self.slow: set[str] = set()
        """Tenants whose lookups hang."""

    def decrypt_settings(self, one: Subscriber) -> Notifications:
        return one.settings

    async def call(self, subject: str, request: Any, answer: type) -> Any:
        if self.broken:
            raise Unavailable("auth restarts")
        if request.tenant in self.slow:
            await self.hanging.wait()
        if answer is Access:
            return Access(1, frozenset({Function.DEVICE_VIEW}), super_admin=False)
        return DescribedDevices([DescribedDevice(5, "oven", "direct", 0)], 0)

    async def read(self, principal: Any) -> "Outside":
        return self

    def allows_device(self, *_: Any) -> bool:
        return True

    async def send(self, one: Subscriber, *_: Any) -> None:
        self.reached[one.tenant] += 1
        if one.tenant == NOISY:
            await self.hanging.wait()
        self.sent[one.tenant] += 1


def sender_of(store: Store, outside: Outside) -> NotificationSender:
    parts = cast("Any", outside)
    return NotificationSender(cast("Any", store), parts, parts, parts, parts)


async def settle() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_webhooks_that_hang_delay_no_other_tenant():
    """A look ends before its deliveries do, and a newcomer finds a free slot."""
    store = Store([subscriber(NOISY, user) for user in range(1, MAX_CONCURRENT_DELIVERIES * 2)])
    outside = Outside()
    sender = sender_of(store, outside)
    await sender.start_due_deliveries()
    await settle()
    assert outside.reached[NOISY] == MAX_CONCURRENT_DELIVERIES // 2

    store.subscribers[1000] = subscriber(QUIET, 1000)
    store.ready.add(1000)
    await sender.start_due_deliveries()
    await settle()

    assert outside.sent == {QUIET: 1}
    outside.hanging.set()
    await settle()
    assert outside.sent[NOISY] == MAX_CONCURRENT_DELIVERIES * 2 - 1
    await sender.deliveries.stop()


async def test_lookups_that_hang_delay_no_other_tenant():
    """Messages of a crowd are prepared a few at a time."""
    store = Store([subscriber(NOISY, user) for user in range(1, MAX_CONCURRENT_DELIVERIES)])
    outside = Outside()
    outside.slow = {NOISY}
    sender = sender_of(store, outside)
    await sender.start_due_deliveries()
    await settle()
    store.subscribers[1000] = subscriber(QUIET, 1000)
    store.ready.add(1000)
    await sender.start_due_deliveries()
    await settle()
    assert outside.sent == {QUIET: 1}
    await sender.deliveries.stop()


async def test_one_message_at_a_time_goes_to_a_user_and_channel():
    """Alarms that come during a delivery go with the next one."""
    store, outside = Store([subscriber(NOISY, 1)]), Outside()
    sender = sender_of(store, outside)
    for _ in range(2):
        await sender.start_due_deliveries()
        await settle()
        store.ready.add(1)
    assert outside.reached[NOISY] == 1
    outside.hanging.set()
    await settle()
    await sender.start_due_deliveries()
    await settle()
    assert outside.sent[NOISY] == 2


async def test_a_failed_lookup_of_a_user_is_repeated_soon():
    """The claim ends immediately, with a new due time."""
    store, outside = Store([subscriber(QUIET, 1)]), Outside()
    outside.broken = True
    await sender_of(store, outside).start_due_deliveries()
    await settle()
    assert store.ended[1]["due"] > 0


def alarm(number: int) -> bytes:
    device = DeviceProfile(
        device_id=5, sn="SN", name="oven", model="OVEN", thing_key="direct.device.SN"
    )
    return msgspec.json.encode(
        AlarmChanged(
            event_id=uuid4().hex, created_at=1, tenant=NOISY, change="raised", alarm_id=number,
            severity="MAJOR", content="hot", raised_at=1, device=device,
        )
    )  # fmt: skip


@pytest.mark.parametrize(("users", "events", "writes"), [(40, 1, 1), (40, 20, 1), (600, 4, 2)])
async def test_notices_of_an_alarm_are_written_together(users: int, events: int, writes: int):
    """All recipients of an alarm by one operation, and several alarms while they are few."""
    store = Store([subscriber(NOISY, user) for user in range(users)])
    await store_notices(cast("Any", store), NOISY, [alarm(number) for number in range(events)])
    assert len(store.added) == writes
    assert sum(map(len, store.added)) == users * events


async def test_a_paused_channel_is_not_due_before_the_end_of_the_pause():
    """An alarm that comes meanwhile waits for it, too."""
    one = msgspec.structs.replace(
        subscriber(NOISY, 1), trouble={"WEBHOOK": ChannelFailures(1, 1 << 50)}
    )
    store = Store([one])
    await store_notices(cast("Any", store), NOISY, [alarm(1)])
    assert store.added[0][0].due == 1 << 50
