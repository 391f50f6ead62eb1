"""Notification settings of users, and notices to deliver.

`alarm_notifications` has one `Subscriber` per user. `alarm_notices` has one `Notice` per event,
user and channel, until it is delivered.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Any, Literal, get_args
from zoneinfo import ZoneInfo

import msgspec
from pymongo import UpdateOne

from libs.common.bus import Wakeups
from libs.common.clock import now_ms
from libs.common.contracts.flows import Severity
from libs.common.http import console
from libs.common.http.ids import Id
from libs.common.store.mongo import Database, Document

Channel = Literal["MAIL", "WEBHOOK"]
AlarmChange = Literal["raised", "cleared"]
"""What happened to the alarm."""
Language = Literal["en", "zh"]
MAX_DEVICES, MAX_OTHERS = 1000, 100
"""Maximum devices, and maximum groups or products, in the settings."""
MAX_DIGEST_MINUTES = 1440
"""Maximum minutes of a digest."""
TimeOfDay = Annotated[str, msgspec.Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 15.0, 3600.0
"""Seconds of the first and the longest pause of a channel after failures. Pauses double."""


class WebhookChannel(msgspec.Struct):
    """A webhook of another system, which receives JSON."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    """URL that receives a `POST` for each notification."""
    secret: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Secret that signs the requests, in the same way as in the node `webhook`."""


class QuietHours(msgspec.Struct):
    """Daily hours without notifications; across midnight if `begin` is later."""

    begin: TimeOfDay
    """Start of the quiet hours, for example `22:00`."""
    end: TimeOfDay
    """End of the quiet hours, for example `06:30`."""


class Notifications(msgspec.Struct, kw_only=True):
    """Body of `PUT /alarm-notifications`: the caller's notification settings."""

    enabled: bool = True
    """Whether notifications are sent."""
    severities: Annotated[list[Severity], msgspec.Meta(max_length=5)] = msgspec.field(
        default_factory=lambda: ["CRITICAL", "MAJOR"]
    )
    """Severities of the alarms to notify about."""
    changes: Annotated[list[AlarmChange], msgspec.Meta(max_length=2)] = msgspec.field(
        default_factory=lambda: ["raised"]
    )
    """Changes of alarms to notify about: `raised`, `cleared`."""
    device_ids: Annotated[list[Id], msgspec.Meta(max_length=MAX_DEVICES)] = []
    group_ids: Annotated[list[Id], msgspec.Meta(max_length=MAX_OTHERS)] = []
    """Ids of device groups."""
    products: Annotated[
        list[Annotated[str, msgspec.Meta(min_length=1, max_length=128)]],
        msgspec.Meta(max_length=MAX_OTHERS),
    ] = []
    """Models of products. Without devices, groups and products, all visible devices match."""
    digest_minutes: Annotated[int, msgspec.Meta(ge=0, le=MAX_DIGEST_MINUTES)] = 0
    """Minutes in which alarms are collected. 0 sends each one immediately."""
    quiet_hours: QuietHours | None = None
    """Hours in which notifications wait; they are sent at the end."""
    time_zone: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = "UTC"
    """IANA name of the time zone of quiet hours and messages."""
    language: Language = "en"
    """Language of emails: English or Chinese."""
    mail: bool = False
    """Whether to send emails to the login address by the tenant's mail server."""
    webhook: WebhookChannel | None = None
    """Webhook that receives notifications."""

    @property
    def zone(self) -> ZoneInfo:
        """Return the time zone; raise the errors of `ZoneInfo`."""
        return ZoneInfo(self.time_zone)

    @property
    def channels(self) -> list[Channel]:
        """Return the configured channels."""
        channels: list[Channel] = []
        if self.mail:
            channels.append("MAIL")
        if self.webhook is not None:
            channels.append("WEBHOOK")
        return channels


class ChannelResult(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The result of the latest message of a channel."""

    at: int
    """Unix time in ms."""
    ok: bool
    """Whether the message was delivered."""
    reason: str = ""
    """Reason of the failure."""
    test: bool = False
    """Whether the message was a test."""


class TestChannel(msgspec.Struct, kw_only=True):
    """Body of `POST /alarm-notifications/test`."""

    channel: Channel
    """Channel that sends a test message."""


class NotificationsResponse(console.ResponseModel, kw_only=True):
    """Response of `GET /alarm-notifications` with hidden secrets."""

    enabled: bool
    """Whether notifications are sent."""
    severities: list[Severity]
    """Severities of the alarms to notify about."""
    changes: list[AlarmChange]
    """Changes of alarms to notify about: `raised`, `cleared`."""
    device_ids: list[str]
    group_ids: list[str]
    """Ids of device groups."""
    products: list[str]
    """Models of products."""
    digest_minutes: int
    """Minutes in which alarms are collected. 0 sends each one immediately."""
    quiet_hours: QuietHours | None = None
    """Hours in which notifications wait; they are sent at the end."""
    time_zone: str
    """IANA name of the time zone, for example `Europe/Berlin`."""
    language: Language
    """Language of emails: English or Chinese."""
    mail: bool
    """Whether emails are sent to the login address."""
    webhook: WebhookChannel | None = None
    """Webhook that receives notifications."""
    results: dict[str, ChannelResult]
    """Latest result by channel, `MAIL` and `WEBHOOK`. Absent before the first message."""


class ChannelFailures(msgspec.Struct, rename="camel"):
    """The failures of a channel."""

    attempts: int = 0
    until: int = 0
    """Time of the next attempt in ms."""
    missed: int = 0
    """Number of alarms that are only counted in the next message."""


class Subscriber(msgspec.Struct, rename="camel", kw_only=True):
    """The notification settings of a user, with encrypted secrets."""

    id: int = msgspec.field(name="_id")
    """Id of the user."""
    tenant: str
    login: str
    """Login address of the user."""
    settings: Notifications
    trouble: dict[str, ChannelFailures] = {}
    """Failures by channel."""
    results: dict[str, ChannelResult] = {}
    """Latest result by channel."""
    tested: dict[str, int] = {}
    """Time of the latest test by channel in ms."""


class AlarmSummary(msgspec.Struct, rename="camel", kw_only=True):
    """A change of an alarm, as sent to users."""

    change: str
    alarm_id: int
    severity: str
    content: str
    value: Any = None
    raised_at: int
    cleared_at: int | None = None
    device_id: int
    device_name: str


class Notice(msgspec.Struct, rename="camel", kw_only=True):
    """A notification about an alarm that waits for delivery."""

    id: str = msgspec.field(name="_id")
    """Id from event, user and channel."""
    tenant: str
    user: int
    channel: Channel
    due: int
    """Unix time in ms."""
    at: datetime
    alarm: AlarmSummary = msgspec.field(name="told")


def compute_due_time(settings: Notifications, now: datetime) -> datetime:
    """Return when to notify of a change at `now`: after the digest and quiet hours."""
    digest_end = now + timedelta(minutes=settings.digest_minutes)
    return find_quiet_end(settings, digest_end) or digest_end


def find_quiet_end(settings: Notifications, now: datetime) -> datetime | None:
    """Return the end of the quiet hours that include `now`, or None."""
    hours = settings.quiet_hours
    if hours is None:
        return None
    local = now.astimezone(settings.zone)
    begin, end = time.fromisoformat(hours.begin), time.fromisoformat(hours.end)
    moment, day = local.time(), local.date()
    over_midnight = begin > end
    is_quiet = moment >= begin or moment < end if over_midnight else begin <= moment < end
    if not is_quiet:
        return None
    if over_midnight and moment >= begin:
        day += timedelta(days=1)
    return datetime.combine(day, end, settings.zone).astimezone(UTC)


def compute_retry_pause(attempts: int) -> timedelta:
    """Return the pause of a channel after `attempts` failures."""
    return timedelta(
        seconds=min(FIRST_PAUSE_SECONDS * 2 ** min(attempts - 1, 20), LONGEST_PAUSE_SECONDS)
    )


NOTICES_TOPIC = "notices"
"""Topic of `Wakeups`: notices are due, or will be."""
MAX_WAITING_NOTICES_PER_CHANNEL = 1000
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
        document = await self._subscribers.find_one({"_id": user, "tenant": tenant})
        return None if document is None else msgspec.convert(document, Subscriber)

    async def save_settings(self, subscriber: Subscriber) -> None:
        """Store the settings of a user, and reset the failures of the channels.

        Due times and claims do not change.
        """
        document = msgspec.to_builtins(subscriber)
        key = {"_id": document.pop("_id"), "tenant": document.pop("tenant")}
        await self._subscribers.update_one(key, {"$set": document}, upsert=True)

    async def list_enabled(self, tenant: str) -> list[Subscriber]:
        """Return the enabled settings of a tenant."""
        cursor = self._subscribers.find({"tenant": tenant, "settings.enabled": True})
        return [msgspec.convert(document, Subscriber) async for document in cursor]

    async def add_notices(self, notices: Sequence[Notice]) -> None:
        """Store notices of alarms, with due times of their recipients.

        A notice that still waits is not stored again; a delivered one is. The number of operations
        does not depend on the number of notices. A notice beyond `MAX_WAITING_NOTICES_PER_CHANNEL`
        is counted as missed.
        """
        ids = {"_id": {"$in": [notice.id for notice in notices]}}
        stored = set(await self._notices.distinct("_id", ids))
        stages: list[Document] = [
            {"$match": {"user": {"$in": list({notice.user for notice in notices})}}},
            {"$group": {"_id": ["$user", "$channel"], "count": {"$sum": 1}}},
        ]
        cursor = await self._notices.aggregate(stages)
        waiting = Counter({tuple(row["_id"]): row["count"] async for row in cursor})
        due: dict[tuple[int, Channel], int] = {}
        missed, documents = Counter[tuple[int, Channel]](), []
        for notice in notices:
            recipient = notice.user, notice.channel
            due[recipient] = min(notice.due, due.get(recipient, notice.due))
            if notice.id not in stored:
                waiting[recipient] += 1
                if waiting[recipient] > MAX_WAITING_NOTICES_PER_CHANNEL:
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
        self.wakeups.notify(NOTICES_TOPIC)

    async def list_due(self, now: int) -> list[tuple[str, int, Channel]]:
        """Return the tenants, users and channels to deliver to; `now` in ms."""
        return [
            (row["tenant"], row["_id"], channel)
            for channel in CHANNELS
            async for row in self._subscribers.find(_due_query(channel, now), {"tenant": 1})
        ]

    async def claim_delivery(
        self, user: int, channel: Channel, now: int, until: int
    ) -> Subscriber | None:
        """Claim a due channel until `finish_delivery` or `until` (ms); None if not due.

        Notices that arrive during the delivery set a new due time.
        """
        change = {"$set": {f"claimed.{channel}": until}, "$unset": {f"due.{channel}": ""}}
        due_query = {"_id": user} | _due_query(channel, now)
        document = await self._subscribers.find_one_and_update(due_query, change)
        return None if document is None else msgspec.convert(document, Subscriber)

    async def finish_delivery(
        self,
        user: int,
        channel: Channel,
        *,
        due: int | None = None,
        trouble: ChannelFailures | None = None,
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
        self.wakeups.notify(NOTICES_TOPIC)

    async def list_waiting(self, user: int, channel: Channel) -> list[Notice]:
        """Return the waiting notices of a user and channel, oldest first."""
        cursor = self._notices.find(
            {"user": user, "channel": channel},
            sort=[("at", 1), ("_id", 1)],
            limit=MAX_WAITING_NOTICES_PER_CHANNEL,
        )
        return [msgspec.convert(document, Notice) async for document in cursor]

    async def delete_notices(self, notices: Sequence[Notice]) -> None:
        """Delete notices."""
        await self._notices.delete_many({"_id": {"$in": [notice.id for notice in notices]}})

    async def record_test_start(self, tenant: str, user: int, channel: Channel, pause: int) -> bool:
        """Record a test; return False within `pause` ms after the latest one."""
        now = now_ms()
        idle = {f"tested.{channel}": {"$not": {"$gt": now - pause}}}
        change = {"$set": {f"tested.{channel}": now}}
        user_query = {"_id": user, "tenant": tenant}
        return (await self._subscribers.update_one(user_query | idle, change)).modified_count == 1

    async def save_test_result(self, user: int, channel: Channel, result: ChannelResult) -> None:
        """Store the result of a test."""
        change = {"$set": {f"results.{channel}": msgspec.to_builtins(result)}}
        await self._subscribers.update_one({"_id": user}, change)


def _due_query(channel: Channel, now: int) -> Document:
    """Return the filter for subscribers with due notices or an expired claim."""
    due, claimed = f"due.{channel}", f"claimed.{channel}"
    return {"$or": [{claimed: {"$lte": now}}, {claimed: None, due: {"$lte": now}}]}
