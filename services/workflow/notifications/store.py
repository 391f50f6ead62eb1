"""Notifications in MongoDB: `alarm_notifications` and `alarm_notices`."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import get_args

import msgspec
from pymongo import UpdateOne

from libs.common.bus import Wakeups
from libs.common.clock import now_ms
from libs.common.store.migrations import create_missing, drop_present
from libs.common.store.mongo import Database, Document
from services.workflow.notifications.model import (
    Channel,
    ChannelResult,
    Notice,
    Subscriber,
    Trouble,
)

NOTICES = "notices"
"""Topic of `Wakeups`: notices are due, or will be."""
MOST_WAITING = 1000
"""Maximum waiting notices of a user and channel; further ones are only counted."""
CHANNELS: tuple[Channel, ...] = get_args(Channel)


class NotificationStore:
    """The collections of notification settings and waiting notices."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        self._subscribers = database["alarm_notifications"]
        self._notices = database["alarm_notices"]
        self.wakeups = wakeups

    async def find(self, tenant: str, user: int) -> Subscriber | None:
        """Return the settings of a user."""
        found = await self._subscribers.find_one({"_id": user, "tenant": tenant})
        return None if found is None else msgspec.convert(found, Subscriber)

    async def put(self, subscriber: Subscriber) -> None:
        """Store the settings of a user; due times and claims do not change."""
        document = msgspec.to_builtins(subscriber)
        key = {"_id": document.pop("_id"), "tenant": document.pop("tenant")}
        await self._subscribers.update_one(key, {"$set": document}, upsert=True)

    async def list_enabled(self, tenant: str) -> list[Subscriber]:
        """Return the enabled settings of a tenant."""
        found = self._subscribers.find({"tenant": tenant, "settings.enabled": True})
        return [msgspec.convert(document, Subscriber) async for document in found]

    async def add(self, notices: Sequence[Notice]) -> None:
        """Store notices of alarms, with due times of their recipients. Idempotent.

        The number of operations does not depend on the number of notices. A notice beyond
        `MOST_WAITING` of a user and channel is counted as missed.
        """
        ids = {"_id": {"$in": [notice.id for notice in notices]}}
        stored = set(await self._notices.distinct("_id", ids))
        stages: list[Document] = [
            {"$match": {"user": {"$in": list({notice.user for notice in notices})}}},
            {"$group": {"_id": ["$user", "$channel"], "count": {"$sum": 1}}},
        ]
        found = await self._notices.aggregate(stages)
        waiting = Counter({tuple(row["_id"]): row["count"] async for row in found})
        due: dict[tuple[int, Channel], int] = {}
        missed, documents = Counter[tuple[int, Channel]](), []
        for notice in notices:
            recipient = notice.user, notice.channel
            due[recipient] = min(notice.due, due.get(recipient, notice.due))
            if notice.id not in stored:
                waiting[recipient] += 1
                if waiting[recipient] > MOST_WAITING:
                    missed[recipient] += 1
                else:
                    documents.append(msgspec.to_builtins(notice, builtin_types=(datetime,)))
        if documents:
            await self._notices.insert_many(documents, ordered=False)
        changes = []
        for (user, channel), first in due.items():
            more = {f"trouble.{channel}.missed": missed[user, channel]}
            change = {"$min": {f"due.{channel}": first}, "$inc": more}
            changes.append(UpdateOne({"_id": user}, change))
        await self._subscribers.bulk_write(changes, ordered=False)
        self.wakeups.notify(NOTICES)

    async def list_due(self, now: int) -> list[tuple[str, int, Channel]]:
        """Return the tenants, users and channels to deliver to; `now` in ms."""
        return [
            (row["tenant"], row["_id"], channel)
            for channel in CHANNELS
            async for row in self._subscribers.find(_is_due(channel, now), {"tenant": 1})
        ]

    async def claim(self, user: int, channel: Channel, now: int, until: int) -> Subscriber | None:
        """Claim a due channel until `finish` or `until` (ms); None if not due.

        Notices that arrive during the delivery set a new due time.
        """
        change = {"$set": {f"claimed.{channel}": until}, "$unset": {f"due.{channel}": ""}}
        mine = {"_id": user} | _is_due(channel, now)
        found = await self._subscribers.find_one_and_update(mine, change)
        return None if found is None else msgspec.convert(found, Subscriber)

    async def finish(
        self,
        user: int,
        channel: Channel,
        *,
        due: int | None = None,
        trouble: Trouble | None = None,
        result: ChannelResult | None = None,
    ) -> None:
        """End a claim; `due` (ms) is the due time of remaining notices.

        `trouble` is the new state of the channel; its `missed` is added to the stored number.
        """
        values: Document = {f"due.{channel}": due, f"results.{channel}": result}
        if trouble is not None:
            values[f"trouble.{channel}.attempts"] = trouble.attempts
            values[f"trouble.{channel}.until"] = trouble.until
        change = {
            "$unset": {f"claimed.{channel}": ""},
            "$set": msgspec.to_builtins({k: v for k, v in values.items() if v is not None}),
            "$inc": {f"trouble.{channel}.missed": trouble.missed if trouble else 0},
        }
        await self._subscribers.update_one({"_id": user}, change)
        self.wakeups.notify(NOTICES)

    async def list_waiting(self, user: int, channel: Channel) -> list[Notice]:
        """Return the waiting notices of a user and channel, in order."""
        found = self._notices.find(
            {"user": user, "channel": channel}, sort=[("at", 1), ("_id", 1)], limit=MOST_WAITING
        )
        return [msgspec.convert(document, Notice) async for document in found]

    async def delete(self, notices: Sequence[Notice]) -> None:
        """Delete notices."""
        await self._notices.delete_many({"_id": {"$in": [notice.id for notice in notices]}})

    async def begin_test(self, tenant: str, user: int, channel: Channel, pause: int) -> bool:
        """Record a test; return False within `pause` ms after the latest one."""
        now = now_ms()
        idle = {f"tested.{channel}": {"$not": {"$gt": now - pause}}}
        change = {"$set": {f"tested.{channel}": now}}
        mine = {"_id": user, "tenant": tenant}
        return (await self._subscribers.update_one(mine | idle, change)).modified_count == 1

    async def save_test_result(self, user: int, channel: Channel, result: ChannelResult) -> None:
        """Store the result of a test."""
        change = {"$set": {f"results.{channel}": msgspec.to_builtins(result)}}
        await self._subscribers.update_one({"_id": user}, change)


def _is_due(channel: Channel, now: int) -> Document:
    """Return the filter for subscribers with due notices or an expired claim."""
    due, claimed = f"due.{channel}", f"claimed.{channel}"
    return {"$or": [{claimed: {"$lte": now}}, {claimed: None, due: {"$lte": now}}]}


async def create_collections(database: Database) -> None:
    """Create the collections and their indexes."""
    for name in ("alarm_notifications", "alarm_notices"):
        await create_missing(database, name)
    await database["alarm_notifications"].create_index([("tenant", 1), ("settings.enabled", 1)])
    await database["alarm_notices"].create_index([("user", 1), ("channel", 1), ("at", 1)])


async def add_due_times(database: Database) -> None:
    """Create indexes of due times, and check all waiting notices once.

    Digests of the previous version are sent early.
    """
    subscribers = database["alarm_notifications"]
    for channel in CHANNELS:
        for field in ("due", "claimed"):
            await subscribers.create_index(f"{field}.{channel}", sparse=True)
        free, expired = {f"claimed.{channel}": None}, {f"claimed.{channel}": 1}
        await subscribers.update_many(free, {"$set": expired})


async def drop_due_index(database: Database) -> None:
    """Deliver notices of the previous version, and drop the index that only it uses."""
    await add_due_times(database)
    await drop_present(database["alarm_notices"], "due_1")
