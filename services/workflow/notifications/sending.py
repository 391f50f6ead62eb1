"""Tells users what is due: one replica at a time does it.

A notice goes when it is told, or when nobody is to be told any more; so a process that dies tells
twice at worst. What a user sees is judged when the user is told.
"""

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime

from libs.common.bus import RpcClient
from libs.common.clock import now_ms, to_ms
from libs.common.contracts.access import ACCESS, Access, UserRef
from libs.common.contracts.names import DEVICES, MOST_DEVICES, DescribedDevices, DescribeDevices
from libs.common.errors import InvalidInput, ThingwayError, TooManyRequests, Unauthenticated
from libs.common.identity import Kind, Principal
from libs.common.identity.functions import Function
from libs.common.identity.grants import GrantReader
from libs.common.identity.seal import SealBroken
from libs.common.store.mongo import StoreError
from services.workflow.errors import NodeFailed
from services.workflow.notifications import timing
from services.workflow.notifications.letters import Post
from services.workflow.notifications.model import (
    Channel,
    ChannelResult,
    Notice,
    Subscriber,
    Trouble,
)
from services.workflow.notifications.service import NotificationSettings
from services.workflow.notifications.store import NotificationStore

PERIOD = 1.0
"""Seconds between two looks."""
AT_ONCE = 8
"""Users that are told at the same time."""
TEST_PAUSE = 10.0
"""Seconds between two tests of a user and channel."""
LONGEST_REASON = 500
"""Characters of a reason that is stored."""
READERS = (Function.DASHBOARD_EDIT, Function.DASHBOARD_VIEW, Function.DEVICE_VIEW)
"""Who may read alarms."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sender:
    """Tells what waits."""

    store: NotificationStore
    settings: NotificationSettings
    post: Post
    rpc: RpcClient
    grants: GrantReader

    async def look(self) -> None:
        """Tell all that is due now."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(tenant: str, user: int, channel: Channel) -> None:
            async with slots:
                try:
                    await self._tell(tenant, user, channel)
                except (StoreError, ThingwayError) as error:
                    log.warning("user %d waits to be told of alarms: %s", user, error)

        async with asyncio.TaskGroup() as group:
            for found in await self.store.due(datetime.now(UTC)):
                group.create_task(one(*found))

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

    async def _tell(self, tenant: str, user: int, channel: Channel) -> None:
        notices = await self.store.waiting(user, channel)
        subscriber = await self.store.find(tenant, user)
        if subscriber is None or not _wanted(subscriber, channel):
            await self.store.drop(notices)
            return
        quiet = timing.quiet_until(subscriber.settings, datetime.now(UTC))
        if quiet is not None:
            await self.store.postpone(user, channel, quiet)
            return
        seen = await self._seen(subscriber, notices)
        trouble = subscriber.trouble.get(channel, Trouble())
        told = [notice.told for notice in notices if notice.told.device_id in seen]
        if told:
            try:
                settings = self.settings.opened(subscriber)
                await self.post.send(subscriber, settings, channel, told, trouble.missed)
            except (NodeFailed, SealBroken) as error:
                await self._fail(subscriber, channel, notices, trouble, error)
                return
        if told:
            result = ChannelResult(at=now_ms(), ok=True)
            await self.store.note(user, channel, Trouble(missed=-trouble.missed), result)
        await self.store.drop(notices)

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
            some = DescribeDevices(tenant, ids[first : first + MOST_DEVICES], counted=False)
            for one in (await self.rpc.call(DEVICES, some, DescribedDevices)).devices:
                if grants.device(one.id, one.integration, one.group):
                    seen.add(one.id)
        return seen

    async def _fail(
        self,
        subscriber: Subscriber,
        channel: Channel,
        notices: list[Notice],
        trouble: Trouble,
        error: Exception,
    ) -> None:
        """Try again later, all together; after many failures they are given up, and counted."""
        attempts, given_up = trouble.attempts + 1, 0
        log.info("user %d is not told of alarms by %s: %s", subscriber.id, channel, error)
        until = datetime.now(UTC) + timing.pause(attempts)
        if attempts >= timing.MOST_ATTEMPTS:
            attempts, given_up = 0, len(notices)
        now_trouble = Trouble(attempts, to_ms(until), given_up)
        await self.store.note(subscriber.id, channel, now_trouble, _failure(error))
        if given_up:
            await self.store.drop(notices)
        await self.store.postpone(subscriber.id, channel, until)


def _failure(error: Exception, *, test: bool = False) -> ChannelResult:
    return ChannelResult(at=now_ms(), ok=False, reason=str(error)[:LONGEST_REASON], test=test)


def _wanted(subscriber: Subscriber, channel: Channel) -> bool:
    return subscriber.settings.enabled and channel in subscriber.settings.channels
