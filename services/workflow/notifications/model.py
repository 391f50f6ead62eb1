"""Notification settings of users, and notices to deliver.

`alarm_notifications` has one `Subscriber` per user. `alarm_notices` has one `Notice` per event,
user and channel, until it is delivered.
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
"""Maximum devices, and maximum groups or products, in the settings."""
LONGEST_DIGEST = 1440
"""Maximum minutes of a digest."""
Clock = Annotated[str, msgspec.Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
FIRST_PAUSE, LONGEST_PAUSE = 15.0, 3600.0
"""Seconds after a failure. Each pause is twice as long as the one before."""


class WebhookChannel(msgspec.Struct):
    """A webhook of another system, which receives JSON."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    secret: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Signs requests like the node `webhook`."""


class QuietHours(msgspec.Struct):
    """Daily hours without notifications; across midnight if `begin` is later."""

    begin: Clock
    end: Clock


class Notifications(msgspec.Struct, kw_only=True):
    """Body of `PUT /alarm-notifications`: the caller's notification settings."""

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
    """Products. Without devices, groups and products, all visible devices match."""
    digest_minutes: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_DIGEST)] = 0
    """Minutes in which alarms are collected. 0 sends each one immediately."""
    quiet_hours: QuietHours | None = None
    time_zone: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = "UTC"
    """IANA name of the time zone of quiet hours and messages."""
    mail: bool = False
    """Whether to send e-mails to the login address by the tenant's mail server."""
    webhook: WebhookChannel | None = None

    @property
    def zone(self) -> ZoneInfo:
        """Return the time zone; raise the errors of `ZoneInfo`."""
        return ZoneInfo(self.time_zone)

    @property
    def channels(self) -> list[Channel]:
        """Return the configured channels."""
        found: list[Channel] = []
        if self.mail:
            found.append("MAIL")
        if self.webhook is not None:
            found.append("WEBHOOK")
        return found


class ChannelResult(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The result of the latest message of a channel."""

    at: int
    """Unix time in ms."""
    ok: bool
    reason: str = ""
    """Reason of the failure."""
    test: bool = False
    """Whether the message was a test."""


class TestChannel(msgspec.Struct, kw_only=True):
    """Body of `POST /alarm-notifications/test`."""

    channel: Channel


class ShownNotifications(console.ResponseModel, kw_only=True):
    """Response of `GET /alarm-notifications` with hidden secrets."""

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
    """Latest result by channel, `MAIL` and `WEBHOOK`. Absent before the first message."""


class Trouble(msgspec.Struct, rename="camel"):
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
    trouble: dict[str, Trouble] = {}
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


def due_time(settings: Notifications, now: datetime) -> datetime:
    """Return when to notify a user of a change now, after digest and quiet hours."""
    digest_end = now + timedelta(minutes=settings.digest_minutes)
    return quiet_until(settings, digest_end) or digest_end


def quiet_until(settings: Notifications, now: datetime) -> datetime | None:
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


def retry_pause(attempts: int) -> timedelta:
    """Return the pause of a channel after `attempts` failures."""
    return timedelta(seconds=min(FIRST_PAUSE * 2 ** min(attempts - 1, 20), LONGEST_PAUSE))
