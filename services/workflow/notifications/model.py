"""What users want to be told of alarms, and what waits to be told.

`alarm_notifications` has a document of `Subscriber` for each user, `alarm_notices` one of `Notice`
for each event, user and channel, until it is told.
"""

from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import msgspec

from libs.common.contracts.flows import Severity
from libs.common.http import console
from libs.common.http.ids import Id

Channel = Literal["MAIL", "WEBHOOK"]
Change = Literal["raised", "cleared"]
MOST_DEVICES, MOST_OTHERS = 1000, 100
"""Devices that a user names; groups, and products."""
LONGEST_DIGEST = 1440
"""Minutes."""
Clock = Annotated[str, msgspec.Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
FIRST_PAUSE, LONGEST_PAUSE = 15.0, 3600.0
"""Seconds after a failure; each pause is twice the one before."""


class WebhookChannel(msgspec.Struct):
    """To another system, as JSON."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    secret: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Signs what is posted, as that of the node `webhook`."""


class QuietHours(msgspec.Struct):
    """From when to when, each day, nothing is told; over midnight when `begin` is later."""

    begin: Clock
    end: Clock


class Notifications(msgspec.Struct, kw_only=True):
    """Body of `PUT /alarm-notifications`: what the caller is told, and how."""

    enabled: bool = True
    severities: Annotated[list[Severity], msgspec.Meta(max_length=5)] = msgspec.field(
        default_factory=lambda: ["CRITICAL", "MAJOR"]
    )
    changes: Annotated[list[Change], msgspec.Meta(max_length=2)] = msgspec.field(
        default_factory=lambda: ["raised"]
    )
    device_ids: Annotated[list[Id], msgspec.Meta(max_length=MOST_DEVICES)] = []
    group_ids: Annotated[list[Id], msgspec.Meta(max_length=MOST_OTHERS)] = []
    products: Annotated[
        list[Annotated[str, msgspec.Meta(min_length=1, max_length=128)]],
        msgspec.Meta(max_length=MOST_OTHERS),
    ] = []
    """Of any of these; of all that the user sees when all three are empty."""
    digest_minutes: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_DIGEST)] = 0
    """How long alarms are gathered; 0: each at once."""
    quiet_hours: QuietHours | None = None
    time_zone: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = "UTC"
    """IANA name of that of quiet hours and times."""
    mail: bool = False
    """To the address that the user logs in with, by the tenant's mail server."""
    webhook: WebhookChannel | None = None

    @property
    def zone(self) -> ZoneInfo:
        """The time zone; raise what `ZoneInfo` does."""
        return ZoneInfo(self.time_zone)

    @property
    def channels(self) -> list[Channel]:
        """How the user is told."""
        found: list[Channel] = []
        if self.mail:
            found.append("MAIL")
        if self.webhook is not None:
            found.append("WEBHOOK")
        return found


class ChannelResult(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The outcome of the last message that a channel sent or failed to send."""

    at: int
    """ms."""
    ok: bool
    reason: str = ""
    """Why it failed."""
    test: bool = False
    """Whether the user asked for it as a test."""


class TestChannel(msgspec.Struct, kw_only=True):
    """Body of `POST /alarm-notifications/test`."""

    channel: Channel


class ShownNotifications(console.ResponseModel, kw_only=True):
    """Answer of `GET /alarm-notifications`; secrets are hidden."""

    enabled: bool
    severities: list[Severity]
    changes: list[Change]
    device_ids: list[str]
    group_ids: list[str]
    products: list[str]
    digest_minutes: int
    quiet_hours: QuietHours | None = None
    time_zone: str
    mail: bool
    webhook: WebhookChannel | None = None
    results: dict[str, ChannelResult]
    """The last result of each channel, `MAIL` and `WEBHOOK`; absent before the first message."""


class Trouble(msgspec.Struct, rename="camel"):
    """A channel that does not work."""

    attempts: int = 0
    until: int = 0
    """ms: when it is tried again."""
    missed: int = 0
    """Alarms that are not told one by one any more."""


class Subscriber(msgspec.Struct, rename="camel", kw_only=True):
    """What a user wants; secrets are sealed."""

    id: int = msgspec.field(name="_id")
    """Of the user."""
    tenant: str
    login: str
    """The address that the user logs in with."""
    settings: Notifications
    trouble: dict[str, Trouble] = {}
    """By channel."""
    results: dict[str, ChannelResult] = {}
    """The last result by channel."""
    tested: dict[str, int] = {}
    """When a test was last sent, ms by channel."""


class Told(msgspec.Struct, rename="camel", kw_only=True):
    """What became of an alarm, as users are told."""

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
    """An alarm that a user is yet to be told of."""

    id: str = msgspec.field(name="_id")
    """Of event, user and channel."""
    tenant: str
    user: int
    channel: Channel
    due: int
    """ms."""
    at: datetime
    told: Told


def due_time(settings: Notifications, now: datetime) -> datetime:
    """When to tell of what happens now: gathered, and behind quiet hours."""
    gathered = now + timedelta(minutes=settings.digest_minutes)
    return quiet_until(settings, gathered) or gathered


def quiet_until(settings: Notifications, now: datetime) -> datetime | None:
    """The end of the quiet hours that a moment falls into; None when it falls into none."""
    hours = settings.quiet_hours
    if hours is None:
        return None
    local = now.astimezone(settings.zone)
    begin, end = time.fromisoformat(hours.begin), time.fromisoformat(hours.end)
    moment, day = local.time(), local.date()
    over_midnight = begin > end
    quiet = moment >= begin or moment < end if over_midnight else begin <= moment < end
    if not quiet:
        return None
    if over_midnight and moment >= begin:
        day += timedelta(days=1)
    return datetime.combine(day, end, settings.zone).astimezone(UTC)


def pause_after(attempts: int) -> timedelta:
    """For how long a channel rests after so many failures."""
    return timedelta(seconds=min(FIRST_PAUSE * 2 ** min(attempts - 1, 20), LONGEST_PAUSE))
