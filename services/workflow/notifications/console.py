"""`/alarm-notifications`: the alarm notifications of the current user."""

from dataclasses import dataclass

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import RequestPrincipal, build_dependencies
from libs.common.http.console import get, post, put
from libs.common.http.guards import allow_holders
from libs.common.http.operations import route_operations
from services.workflow.notifications.sender import ALARM_READ_FUNCTIONS, NotificationSender
from services.workflow.notifications.service import NotificationSettings
from services.workflow.notifications.store import (
    ChannelResult,
    Notifications,
    NotificationsResponse,
    TestChannel,
)


@get("/", guards=[allow_holders(*ALARM_READ_FUNCTIONS)])
async def get_alarm_notifications(
    principal: RequestPrincipal, notifications: NamedDependency[NotificationSettings]
) -> NotificationsResponse:
    """Get the notification settings of the current user, with hidden secrets."""
    return await notifications.get(principal)


@put(
    "/",
    guards=[allow_holders(*ALARM_READ_FUNCTIONS)],
    example={
        "severities": ["CRITICAL"],
        "quiet_hours": {"begin": "22:00", "end": "06:30"},
        "time_zone": "Europe/Berlin",
        "webhook": {"url": "https://example.org/alarms", "secret": "…"},
    },
)
async def put_alarm_notifications(
    principal: RequestPrincipal,
    notifications: NamedDependency[NotificationSettings],
    data: JSONBody[Notifications],
) -> None:
    """Replace the notification settings. A hidden secret stays unchanged."""
    await notifications.put(principal, data)


@post(
    "/test",
    guards=[allow_holders(*ALARM_READ_FUNCTIONS)],
    example={"channel": "WEBHOOK"},
    waits=True,
)
async def test_alarm_notifications(
    principal: RequestPrincipal,
    notification_sender: NamedDependency[NotificationSender],
    data: JSONBody[TestChannel],
) -> ChannelResult:
    """Send a test message by a saved channel, and return the result.

    At most one test in 10 seconds per channel. `ok` is false if the message was not delivered, and
    `reason` explains why.
    """
    return await notification_sender.send_test(principal, data.channel)


@dataclass(frozen=True)
class NotificationHandlerDependencies:
    """Dependencies of the operations on notifications."""

    notifications: NotificationSettings
    notification_sender: NotificationSender


def notification_router(handlers: NotificationHandlerDependencies) -> Router:
    """Return the router of the package."""
    return route_operations(
        globals(),
        "/alarm-notifications",
        dependencies=build_dependencies(handlers),
        tags=["Alarms"],
    )
