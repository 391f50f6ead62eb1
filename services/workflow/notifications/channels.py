"""Sends notifications by email and webhook."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import msgspec

from libs.common.clock import from_ms
from services.workflow.credentials.service import TenantCredentials
from services.workflow.errors import NodeFailed
from services.workflow.notifications.store import AlarmSummary, Channel, Notifications, Subscriber
from services.workflow.outgoing.http import OutgoingHttp, webhook_request
from services.workflow.outgoing.mail import EmailMessage, OutgoingMail

SECONDS, TEST_SECONDS = 30.0, 20.0
"""Timeouts of a message, and of a test, which a user waits for behind the gateway."""
TEST_SUBJECT = "Test of your alarm notifications"
TEST_CONTENT = "<p>This is a test message. Your alarm notifications are sent to this address.</p>"
MAX_LISTED = 100
"""Maximum alarms listed in a message; further ones are counted."""
SENDER = "Thingway"
COLUMNS = ("Time", "Severity", "Change", "Alarm", "Device", "Value")
"""Titles of the columns of an email."""


@dataclass(frozen=True)
class NotificationChannels:
    """Sends emails and webhooks."""

    mail: OutgoingMail
    credentials: TenantCredentials
    http: OutgoingHttp

    async def send(
        self,
        subscriber: Subscriber,
        settings: Notifications,
        channel: Channel,
        alarms: Sequence[AlarmSummary],
        missed: int,
    ) -> None:
        """Notify a user of alarms and of `missed` unlisted ones; raise `NodeFailed`."""
        listed, more = alarms[-MAX_LISTED:], max(len(alarms) - MAX_LISTED, 0) + missed
        if channel == "MAIL":
            subject, content = build_subject(listed, more), build_content(settings, listed, more)
            await self._mail_to(subscriber, subject, content, SECONDS)
        elif settings.webhook is not None:
            body = {"tenant": subscriber.tenant, "alarms": listed, "more": more}
            request = webhook_request(settings.webhook.url, body, settings.webhook.secret)
            await self.http.post(request, SECONDS)

    async def send_test(
        self, subscriber: Subscriber, settings: Notifications, channel: Channel
    ) -> None:
        """Send a message that is marked as a test; raise `NodeFailed`."""
        if channel == "MAIL":
            await self._mail_to(subscriber, TEST_SUBJECT, TEST_CONTENT, TEST_SECONDS)
        elif settings.webhook is not None:
            body = {"tenant": subscriber.tenant, "alarms": [], "more": 0, "test": True}
            request = webhook_request(settings.webhook.url, body, settings.webhook.secret)
            await self.http.post(request, TEST_SECONDS)

    async def _mail_to(
        self, subscriber: Subscriber, subject: str, content: str, seconds: float
    ) -> None:
        server = await self.credentials.find_mail_server(subscriber.tenant)
        if server is None:
            raise NodeFailed("the tenant has no mail server; add its SMTP credential")
        email = EmailMessage(
            sender=server.username,
            sender_name=SENDER,
            recipients=[subscriber.login],
            subject=subject,
            content=content,
        )
        await self.mail.send(server, email, seconds)


def build_subject(listed: Sequence[AlarmSummary], more: int) -> str:
    """Return the subject of an email."""
    if len(listed) == 1 and not more:
        (alarm,) = listed
        text = f"{alarm.severity} {alarm.change}: {alarm.content} ({alarm.device_name})"
    else:
        text = f"{len(listed) + more} alarm changes"
    return " ".join(text.split())[:200]


def build_content(settings: Notifications, listed: Sequence[AlarmSummary], more: int) -> str:
    """Return an email as HTML with times in the user's time zone."""
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in _cells(settings, alarm))}</tr>"
        for alarm in listed
    )
    head = "".join(f"<th align=left>{title}</th>" for title in COLUMNS)
    rest = f"<p>Alarm changes that are not listed: {more}</p>" if more else ""
    return f"<table><tr>{head}</tr>{rows}</table>{rest}"


def _cells(settings: Notifications, alarm: AlarmSummary) -> list[str]:
    at = alarm.cleared_at if alarm.change == "cleared" and alarm.cleared_at else alarm.raised_at
    local = f"{from_ms(at).astimezone(settings.zone):%Y-%m-%d %H:%M:%S %Z}"
    value = _text(alarm.value)
    return [local, alarm.severity, alarm.change, alarm.content, alarm.device_name, value]


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()
