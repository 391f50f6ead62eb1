"""Sends users what they are told, by mail and webhook."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import msgspec

from libs.common.clock import from_ms
from services.workflow.credentials.service import TenantCredentials
from services.workflow.errors import NodeFailed
from services.workflow.notifications.model import Channel, Notifications, Subscriber, Told
from services.workflow.outgoing.http import OutgoingHttp, webhook_request
from services.workflow.outgoing.mail import EmailMessage, OutgoingMail

SECONDS, TEST_SECONDS = 30.0, 20.0
"""That one message may take, and a test, which a person waits for behind the gateway."""
TEST_SUBJECT = "Test of your alarm notifications"
TEST_CONTENT = "<p>This is a test message. Your alarm notifications are sent to this address.</p>"
MOST_LISTED = 100
"""Alarms that a message lists; of more it says how many."""
SENDER = "Thingway"


@dataclass(frozen=True)
class NotificationChannels:
    """Sends mails and webhooks."""

    mail: OutgoingMail
    credentials: TenantCredentials
    http: OutgoingHttp

    async def send(
        self,
        subscriber: Subscriber,
        settings: Notifications,
        channel: Channel,
        told: Sequence[Told],
        missed: int,
    ) -> None:
        """Tell a user of alarms, `missed` more without a word; raise `NodeFailed`."""
        listed, more = told[-MOST_LISTED:], max(len(told) - MOST_LISTED, 0) + missed
        if channel == "MAIL":
            subject, content = subject_of(listed, more), content_of(settings, listed, more)
            await self._mail_to(subscriber, subject, content, SECONDS)
        elif settings.webhook is not None:
            body = {"tenant": subscriber.tenant, "alarms": listed, "more": more}
            request = webhook_request(settings.webhook.url, body, settings.webhook.secret)
            await self.http.post(request, SECONDS)

    async def send_test(
        self, subscriber: Subscriber, settings: Notifications, channel: Channel
    ) -> None:
        """Send a message that says that it is a test; raise `NodeFailed`."""
        if channel == "MAIL":
            await self._mail_to(subscriber, TEST_SUBJECT, TEST_CONTENT, TEST_SECONDS)
        elif settings.webhook is not None:
            body = {"tenant": subscriber.tenant, "alarms": [], "more": 0, "test": True}
            request = webhook_request(settings.webhook.url, body, settings.webhook.secret)
            await self.http.post(request, TEST_SECONDS)

    async def _mail_to(
        self, subscriber: Subscriber, subject: str, content: str, seconds: float
    ) -> None:
        server = await self.credentials.mail_server(subscriber.tenant)
        if server is None:
            raise NodeFailed("the tenant has no mail server: its credential SMTP is not set")
        email = EmailMessage(
            sender=server.username,
            sender_name=SENDER,
            recipients=[subscriber.login],
            subject=subject,
            content=content,
        )
        await self.mail.send(server, email, seconds)


def subject_of(listed: Sequence[Told], more: int) -> str:
    """The subject of a mail."""
    if len(listed) == 1 and not more:
        (one,) = listed
        text = f"{one.severity} {one.change}: {one.content} ({one.device_name})"
    else:
        text = f"{len(listed) + more} changes of alarms"
    return " ".join(text.split())[:200]


def content_of(settings: Notifications, listed: Sequence[Told], more: int) -> str:
    """A mail as HTML; times are those of the user's zone."""
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in _cells(settings, one))}</tr>"
        for one in listed
    )
    rest = f"<p>{more} more are not listed.</p>" if more else ""
    return f"<table>{rows}</table>{rest}"


def _cells(settings: Notifications, one: Told) -> list[str]:
    at = one.cleared_at if one.change == "cleared" and one.cleared_at else one.raised_at
    shown = f"{from_ms(at).astimezone(settings.zone):%Y-%m-%d %H:%M:%S %Z}"
    return [shown, one.severity, one.change, one.content, one.device_name, _text(one.value)]


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()
