"""Notifications in MongoDB: `alarm_notifications` and `alarm_notices`."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from libs.common.clock import now_ms, to_ms
from libs.common.store.mongo import Database, Document, DuplicateKey, create_missing
from services.workflow.notifications.model import (
    Channel,
    ChannelResult,
    Notice,
    Subscriber,
    Trouble,
)

MOST_WAITING = 1000
"""Notices that wait for a user and channel; more are counted."""
MOST_GROUPS = 100
"""Users and channels that are looked at together."""


class NotificationStore:
    """Reads and writes what users want, and what waits."""

    def __init__(self, database: Database) -> None:
        self._subscribers = database["alarm_notifications"]
        self._notices = database["alarm_notices"]

    async def find(self, tenant: str, user: int) -> Subscriber | None:
        """What a user wants."""
        found = await self._subscribers.find_one({"_id": user, "tenant": tenant})
        return None if found is None else msgspec.convert(found, Subscriber)

    async def put(self, subscriber: Subscriber) -> None:
        """Write what a user wants."""
        key = {"_id": subscriber.id, "tenant": subscriber.tenant}
        document = msgspec.to_builtins(subscriber)
        await self._subscribers.replace_one(key, document, upsert=True)

    async def of_tenant(self, tenant: str) -> list[Subscriber]:
        """All that want to be told of something."""
        found = self._subscribers.find({"tenant": tenant, "settings.enabled": True})
        return [msgspec.convert(one, Subscriber) async for one in found]

    async def add(self, notice: Notice) -> None:
        """Let a notice wait; one that waits already stays, one too many is counted."""
        mine = {"user": notice.user, "channel": notice.channel}
        waiting = await self._notices.count_documents(mine, limit=MOST_WAITING)
        if waiting >= MOST_WAITING and not await self._notices.find_one({"_id": notice.id}):
            change = {"$inc": {f"trouble.{notice.channel}.missed": 1}}
            await self._subscribers.update_one({"_id": notice.user}, change)
            return
        try:
            await self._notices.insert_one(msgspec.to_builtins(notice, builtin_types=(datetime,)))
        except DuplicateKey:
            return

    async def due(self, now: datetime) -> list[tuple[str, int, Channel]]:
        """Tenants, users and channels that something is due for, those that wait longest first."""
        stages: list[Document] = [
            {"$match": {"due": {"$lte": to_ms(now)}}},
            {
                "$group": {
                    "_id": {"tenant": "$tenant", "user": "$user", "channel": "$channel"},
                    "due": {"$min": "$due"},
                }
            },
            {"$sort": {"due": 1}},
            {"$limit": MOST_GROUPS},
        ]
        found = [one["_id"] async for one in await self._notices.aggregate(stages)]
        return [(one["tenant"], one["user"], one["channel"]) for one in found]

    async def waiting(self, user: int, channel: Channel) -> list[Notice]:
        """All that waits for a user and channel, in order."""
        found = self._notices.find(
            {"user": user, "channel": channel}, sort=[("at", 1), ("_id", 1)], limit=MOST_WAITING
        )
        return [msgspec.convert(one, Notice) async for one in found]

    async def postpone(self, user: int, channel: Channel, until: datetime) -> None:
        """Tell a user later, all together."""
        mine = {"user": user, "channel": channel, "due": {"$lt": to_ms(until)}}
        await self._notices.update_many(mine, {"$set": {"due": to_ms(until)}})

    async def drop(self, notices: Sequence[Notice]) -> None:
        """They need not be told any more."""
        await self._notices.delete_many({"_id": {"$in": [one.id for one in notices]}})

    async def note(
        self,
        user: int,
        channel: Channel,
        trouble: Trouble,
        result: ChannelResult,
    ) -> None:
        """Store how a channel does; `trouble.missed` is added to what it has missed."""
        place = f"trouble.{channel}"
        change = {
            "$set": {
                f"{place}.attempts": trouble.attempts,
                f"{place}.until": trouble.until,
                f"results.{channel}": msgspec.to_builtins(result),
            },
            "$inc": {f"{place}.missed": trouble.missed},
        }
        await self._subscribers.update_one({"_id": user}, change)

    async def begin_test(self, tenant: str, user: int, channel: Channel, pause: int) -> bool:
        """Note that a test begins now; False when the last one began less than `pause` ms ago."""
        now = now_ms()
        idle = {f"tested.{channel}": {"$not": {"$gt": now - pause}}}
        change = {"$set": {f"tested.{channel}": now}}
        mine = {"_id": user, "tenant": tenant}
        return (await self._subscribers.update_one(mine | idle, change)).modified_count == 1

    async def note_test(self, user: int, channel: Channel, result: ChannelResult) -> None:
        """Store the result of a test."""
        change = {"$set": {f"results.{channel}": msgspec.to_builtins(result)}}
        await self._subscribers.update_one({"_id": user}, change)


async def create_collections(database: Database) -> None:
    """Make the collections, and what the queries above need."""
    for name in ("alarm_notifications", "alarm_notices"):
        await create_missing(database, name)
    await database["alarm_notifications"].create_index([("tenant", 1), ("settings.enabled", 1)])
    await database["alarm_notices"].create_index("due")
    await database["alarm_notices"].create_index([("user", 1), ("channel", 1), ("at", 1)])
