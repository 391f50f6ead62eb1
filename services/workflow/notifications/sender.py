"""Sends due notices to users, fairly by tenant.

A process claims a user and channel, sends all waiting notices in one message, and deletes them. The
claim of a crashed process expires, so its message may be sent twice. Grants are checked when a
message is sent.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from libs.common.bus import RpcClient
from libs.common.clock import now_ms, to_ms
from libs.common.contracts.access import GET_ACCESS, Access, UserRef
from libs.common.contracts.names import MAX_DESCRIBED_DEVICES
from libs.common.device_client import DeviceClient
from libs.common.errors import InvalidInput, ThingwayError, TooManyRequests, Unauthenticated
from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.functions import Function
from libs.common.identity.grants import GrantReader
from libs.common.identity.seal import SealBroken
from libs.common.jobs import NamedTasks
from libs.common.scheduling import FairScheduler
from libs.common.scheduling.turns import repeat
from libs.common.store.mongo import StoreError
from services.workflow.errors import NodeFailed
from services.workflow.notifications.channels import NotificationChannels
from services.workflow.notifications.service import NotificationSettings
from services.workflow.notifications.store import (
    NOTICES_TOPIC,
    Channel,
    ChannelFailures,
    ChannelResult,
    Notice,
    NotificationStore,
    Subscriber,
    compute_retry_pause,
    find_quiet_end,
)

CHECK_SECONDS = 1.0
"""Seconds between two checks for due notices."""
MAX_CONCURRENT_DELIVERIES = 64
"""Maximum concurrent deliveries, which mostly wait for other systems."""
MAX_CONCURRENT_PREPARATIONS = 8
"""Maximum messages prepared concurrently, as each needs stores and services."""
DELIVERY_SECONDS, CLAIM_SECONDS = 40.0, 45.0
"""Seconds after which a delivery is cancelled, and after which its claim expires."""
MIN_SECONDS_BETWEEN_TESTS = 10.0
"""Minimum seconds between two tests of a user and channel."""
MAX_ATTEMPTS = 30
"""Consecutive failures of a channel, in about 22 hours, after which its notices are dropped."""
MAX_REASON_CHARACTERS = 500
"""Maximum characters of a stored reason."""
ALARM_READ_FUNCTIONS = (Function.DASHBOARD_EDIT, Function.DASHBOARD_VIEW, Function.DEVICE_VIEW)
"""Functions that allow reading alarms."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NotificationSender:
    """Sends the waiting notices of users by email and webhook."""

    store: NotificationStore
    settings: NotificationSettings
    channels: NotificationChannels
    rpc: RpcClient
    grants: GrantReader
    slots: FairScheduler = field(
        default_factory=partial(FairScheduler, "notices", MAX_CONCURRENT_DELIVERIES)
    )
    lookups: FairScheduler = field(
        default_factory=partial(FairScheduler, "lookups", MAX_CONCURRENT_PREPARATIONS)
    )
    deliveries: NamedTasks = field(default_factory=NamedTasks)

    async def run(self) -> None:
        """Deliver due notices until cancelled."""
        try:
            await repeat(
                self.start_due_deliveries,
                CHECK_SECONDS,
                "alarm notifications were not sent; retrying",
                self.store.wakeups.create_event(NOTICES_TOPIC),
                self._list_due_within,
            )
        finally:
            await self.deliveries.stop()

    async def _list_due_within(self, within: float) -> list[tuple[str, int, Channel]]:
        return await self.store.list_due(now_ms() + int(within * 1000))

    async def start_due_deliveries(self) -> None:
        """Start a delivery for each user and channel with due notices."""
        for tenant, user, channel in await self.store.list_due(now_ms()):
            self.deliveries.start((user, channel), partial(self._deliver, tenant, user, channel))

    async def _deliver(self, tenant: str, user: int, channel: Channel) -> None:
        """Deliver the waiting notices of a user and channel when it is the tenant's turn.

        Later checks retry failures.
        """
        try:
            async with self.slots.slot(tenant, sub=(user, channel)):
                until = now_ms() + int(CLAIM_SECONDS * 1000)
                subscriber = await self.store.claim_delivery(user, channel, now_ms(), until)
                if subscriber is None:
                    return
                try:
                    async with asyncio.timeout(DELIVERY_SECONDS):
                        await self._send_waiting(subscriber, channel)
                except (ThingwayError, TimeoutError):
                    again = datetime.now(UTC) + compute_retry_pause(1)
                    await self.store.finish_delivery(user, channel, due=to_ms(again))
                    raise
        except (StoreError, ThingwayError, TimeoutError) as error:
            log.info("user %d: the alarm notification is retried: %r", user, error)

    async def send_test(self, user: Principal, channel: Channel) -> ChannelResult:
        """Send the caller a test by one channel, and store the result.

        Raises `InvalidInput` if the channel is not configured, and `TooManyRequests` within
        `MIN_SECONDS_BETWEEN_TESTS` seconds after the latest test.
        """
        subscriber = await self.store.find(user.tenant, user.user_id)
        if subscriber is None or channel not in subscriber.settings.channels:
            raise InvalidInput("must be configured; save its settings first", field="channel")
        pause = int(MIN_SECONDS_BETWEEN_TESTS * 1000)
        if not await self.store.record_test_start(user.tenant, user.user_id, channel, pause):
            raise TooManyRequests(
                "a test was sent just now; try again later", retry_after=MIN_SECONDS_BETWEEN_TESTS
            )
        try:
            settings = self.settings.decrypt_settings(subscriber)
            await self.channels.send_test(subscriber, settings, channel)
            result = ChannelResult(at=now_ms(), ok=True, test=True)
        except (NodeFailed, SealBroken) as error:
            result = _failure_result(error, test=True)
        await self.store.save_test_result(user.user_id, channel, result)
        return result

    async def _send_waiting(self, subscriber: Subscriber, channel: Channel) -> None:
        """Send waiting notices and end the claim.

        In quiet hours, the notices wait until the hours end. Failed notices are retried together
        later; after `MAX_ATTEMPTS` failures they are dropped and counted.
        """
        user, trouble = subscriber.id, subscriber.trouble.get(channel, ChannelFailures())
        async with self.lookups.slot(subscriber.tenant):
            notices = await self.store.list_waiting(user, channel)
            settings = subscriber.settings
            deliverable = notices if settings.enabled and channel in settings.channels else []
            quiet_end = find_quiet_end(settings, datetime.now(UTC))
            if deliverable and quiet_end is not None:
                await self.store.finish_delivery(user, channel, due=to_ms(quiet_end))
                return
            visible = (
                await self._find_visible_devices(subscriber, deliverable) if deliverable else set()
            )
        alarms = [notice.alarm for notice in deliverable if notice.alarm.device_id in visible]
        if not alarms:
            await self.store.delete_notices(notices)
            await self.store.finish_delivery(user, channel)
            return
        try:
            settings = self.settings.decrypt_settings(subscriber)
            await self.channels.send(subscriber, settings, channel, alarms, trouble.missed)
        except (NodeFailed, SealBroken) as error:
            log.info("user %d: the alarm notification by %s failed: %s", user, channel, error)
            result, attempts = _failure_result(error), trouble.attempts + 1
            trouble.until = to_ms(datetime.now(UTC) + compute_retry_pause(attempts))
            dropped = notices if attempts >= MAX_ATTEMPTS else []
            trouble.attempts = 0 if dropped else attempts
            trouble.missed, notices = len(dropped), dropped
        else:
            result, trouble = (
                ChannelResult(at=now_ms(), ok=True),
                ChannelFailures(missed=-trouble.missed),
            )
        await self.store.delete_notices(notices)
        due = trouble.until or None
        await self.store.finish_delivery(user, channel, due=due, trouble=trouble, result=result)

    async def _find_visible_devices(
        self, subscriber: Subscriber, notices: list[Notice]
    ) -> set[int]:
        """Return the ids of those devices of `notices` that are visible to a user.

        The result is empty if the user is deleted or may not read alarms.
        """
        tenant, user = subscriber.tenant, subscriber.id
        try:
            access = await self.rpc.call(GET_ACCESS, UserRef(tenant, user), Access)
        except Unauthenticated:
            return set()
        principal = Principal(
            kind=PrincipalKind.USER,
            tenant=tenant,
            subject=str(user),
            functions=access.functions,
            super_admin=access.super_admin,
        )
        if not principal.may(*ALARM_READ_FUNCTIONS):
            return set()
        grants = await self.grants.read(principal)
        ids = sorted({notice.alarm.device_id for notice in notices})
        visible: set[int] = set()
        for first in range(0, len(ids), MAX_DESCRIBED_DEVICES):
            batch = ids[first : first + MAX_DESCRIBED_DEVICES]
            for device in await DeviceClient(self.rpc).describe_devices(tenant, batch):
                if grants.allows_device(device.id, device.integration, device.group):
                    visible.add(device.id)
        return visible


def _failure_result(error: Exception, *, test: bool = False) -> ChannelResult:
    return ChannelResult(
        at=now_ms(), ok=False, reason=str(error)[:MAX_REASON_CHARACTERS], test=test
    )
