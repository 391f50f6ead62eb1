"""Sends users the notices that are due, in turns of their tenants.

A process claims a user and channel, sends what waits for both in one message, and deletes it. The
claim of a process that dies expires, so its message is sent twice at worst. Grants are checked
when a message is sent.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from libs.common.bus import RpcClient
from libs.common.clock import now_ms, to_ms
from libs.common.contracts.access import ACCESS, Access, UserRef
from libs.common.contracts.names import MOST_DEVICES
from libs.common.device_client import DeviceClient
from libs.common.errors import InvalidInput, ThingwayError, TooManyRequests, Unauthenticated
from libs.common.identity import Kind, Principal
from libs.common.identity.functions import Function
from libs.common.identity.grants import GrantReader
from libs.common.identity.seal import SealBroken
from libs.common.jobs import NamedTasks
from libs.common.scheduling import FairScheduler
from libs.common.scheduling.turns import repeat
from libs.common.store.mongo import StoreError
from services.workflow.errors import NodeFailed
from services.workflow.notifications.channels import NotificationChannels
from services.workflow.notifications.model import (
    Channel,
    ChannelResult,
    Notice,
    Subscriber,
    Trouble,
    pause_after,
    quiet_until,
)
from services.workflow.notifications.service import NotificationSettings
from services.workflow.notifications.store import NotificationStore

PERIOD = 1.0
"""Seconds between two looks."""
DELIVERIES = 64
"""Messages on their way at a time; most of their time they wait for the other side."""
LOOKUPS = 8
"""Messages that are prepared at a time: stores and services work for each."""
DEADLINE, CLAIM = 40.0, 45.0
"""Seconds that a delivery may take, and after which another process repeats it."""
TEST_PAUSE = 10.0
"""Seconds between two tests of a user and channel."""
MOST_ATTEMPTS = 30
"""Failures one after the other, in rather more than a day, after which alarms are given up."""
LONGEST_REASON = 500
"""Characters of a reason that is stored."""
READERS = (Function.DASHBOARD_EDIT, Function.DASHBOARD_VIEW, Function.DEVICE_VIEW)
"""Who may read alarms."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NotificationSender:
    """Tells what waits."""

    store: NotificationStore
    settings: NotificationSettings
    post: NotificationChannels
    rpc: RpcClient
    grants: GrantReader
    slots: FairScheduler = field(default_factory=partial(FairScheduler, "notices", DELIVERIES))
    lookups: FairScheduler = field(default_factory=partial(FairScheduler, "lookups", LOOKUPS))
    deliveries: NamedTasks = field(default_factory=NamedTasks)

    async def run(self) -> None:
        """Deliver what is due, for ever."""
        try:
            await repeat(self.look, PERIOD, "notifications of alarms wait")
        finally:
            await self.deliveries.stop()

    async def look(self) -> None:
        """Begin a delivery to each user and channel with due notices."""
        for tenant, user, channel in await self.store.due(now_ms()):
            self.deliveries.begin((user, channel), partial(self._deliver, tenant, user, channel))

    async def _deliver(self, tenant: str, user: int, channel: Channel) -> None:
        """Deliver in the tenant's turn; what fails here is found again by a later look."""
        try:
            async with self.slots.slot(tenant, sub=(user, channel)):
                until = now_ms() + int(CLAIM * 1000)
                subscriber = await self.store.claim(user, channel, now_ms(), until)
                if subscriber is None:
                    return
                try:
                    async with asyncio.timeout(DEADLINE):
                        await self._tell(subscriber, channel)
                except (ThingwayError, TimeoutError):
                    again = datetime.now(UTC) + pause_after(1)
                    await self.store.finish(user, channel, due=to_ms(again))
                    raise
        except (StoreError, ThingwayError, TimeoutError) as error:
            log.info("user %d waits to be told of alarms: %r", user, error)

    async def test(self, user: Principal, channel: Channel) -> ChannelResult:
        """Send the caller a test by one of its channels, and store the result.

        Raises `InvalidInput` when the channel is not set, and `TooManyRequests` when the last
        test began less than `TEST_PAUSE` seconds ago.
        """
        subscriber = await self.store.find(user.tenant, user.user_id)
        if subscriber is None or channel not in subscriber.settings.channels:
            raise InvalidInput("is not set; save it first", field="channel")
        pause = int(TEST_PAUSE * 1000)
        if not await self.store.begin_test(user.tenant, user.user_id, channel, pause):
            raise TooManyRequests("a test was just sent; try again", retry_after=TEST_PAUSE)
        try:
            settings = self.settings.opened(subscriber)
            await self.post.send_test(subscriber, settings, channel)
            result = ChannelResult(at=now_ms(), ok=True, test=True)
        except (NodeFailed, SealBroken) as error:
            result = _failure(error, test=True)
        await self.store.note_test(user.user_id, channel, result)
        return result

    async def _tell(self, subscriber: Subscriber, channel: Channel) -> None:
        """Send what waits, and end the claim.

        What fails is tried again later, all together; after many failures it is given up and
        counted.
        """
        user, trouble = subscriber.id, subscriber.trouble.get(channel, Trouble())
        async with self.lookups.slot(subscriber.tenant):
            notices = await self.store.waiting(user, channel)
            settings = subscriber.settings
            wanted = notices if settings.enabled and channel in settings.channels else []
            quiet = quiet_until(settings, datetime.now(UTC))
            if wanted and quiet is not None:
                await self.store.finish(user, channel, due=to_ms(quiet))
                return
            seen = await self._seen(subscriber, wanted) if wanted else set()
        told = [notice.told for notice in wanted if notice.told.device_id in seen]
        if not told:
            await self.store.drop(notices)
            await self.store.finish(user, channel)
            return
        try:
            settings = self.settings.opened(subscriber)
            await self.post.send(subscriber, settings, channel, told, trouble.missed)
        except (NodeFailed, SealBroken) as error:
            log.info("user %d is not told of alarms by %s: %s", user, channel, error)
            result, attempts = _failure(error), trouble.attempts + 1
            trouble.until = to_ms(datetime.now(UTC) + pause_after(attempts))
            given_up = notices if attempts >= MOST_ATTEMPTS else []
            trouble.attempts = 0 if given_up else attempts
            trouble.missed, notices = len(given_up), given_up
        else:
            result, trouble = ChannelResult(at=now_ms(), ok=True), Trouble(missed=-trouble.missed)
        await self.store.drop(notices)
        due = trouble.until or None
        await self.store.finish(user, channel, due=due, trouble=trouble, result=result)

    async def _seen(self, subscriber: Subscriber, notices: list[Notice]) -> set[int]:
        """The devices that a user sees now; none when the user is gone or may read no alarms."""
        tenant, user = subscriber.tenant, subscriber.id
        try:
            access = await self.rpc.call(ACCESS, UserRef(tenant, user), Access)
        except Unauthenticated:
            return set()
        who = Principal(
            kind=Kind.USER,
            tenant=tenant,
            subject=str(user),
            functions=access.functions,
            super_admin=access.super_admin,
        )
        if not who.may(*READERS):
            return set()
        grants = await self.grants.of(who)
        ids = sorted({notice.told.device_id for notice in notices})
        seen: set[int] = set()
        for first in range(0, len(ids), MOST_DEVICES):
            some = ids[first : first + MOST_DEVICES]
            found = await DeviceClient(self.rpc).describe_devices(tenant, some)
            seen |= {one.id for one in found if grants.device(one.id, one.integration, one.group)}
        return seen


def _failure(error: Exception, *, test: bool = False) -> ChannelResult:
    return ChannelResult(at=now_ms(), ok=False, reason=str(error)[:LONGEST_REASON], test=test)
