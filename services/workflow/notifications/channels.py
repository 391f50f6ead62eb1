"""Sends notifications by email and webhook."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import msgspec

from libs.common.clock import from_ms
from services.workflow.credentials.service import TenantCredentials
from services.workflow.errors import NodeFailed
from services.workflow.notifications.store import (
    AlarmSummary,
    Channel,
    Language,
    Notifications,
    Subscriber,
)
from services.workflow.outgoing.http import OutgoingHttp, build_webhook_request
from services.workflow.outgoing.mail import EmailMessage, OutgoingMail

SEND_SECONDS, TEST_SECONDS = 30.0, 20.0
"""Maximum seconds to send a message, and to send a test, whose result a user waits for."""
MAX_LISTED_ALARMS = 100
"""Maximum alarms listed in a message: the latest ones. The others are counted."""
SENDER_NAME = "Thingway"


class EmailTexts(NamedTuple):
    """The texts of emails in a language."""

    columns: Sequence[str]
    """Titles of the columns."""
    terms: Mapping[str, str]
    """Translations of severities and changes, as in the console; other terms stay as they are."""
    subject: str
    """Subject for one alarm."""
    many: str
    """Subject for several alarms."""
    more: str
    """Last line of the email if not all alarms are listed."""
    test_subject: str
    test_content: str


TEXTS_BY_LANGUAGE: dict[Language, EmailTexts] = {
    "en": EmailTexts(
        columns=("Time", "Severity", "Change", "Alarm", "Device", "Value"),
        terms={},
        subject="{severity} {change}: {content} ({device})",
        many="{count} alarm changes",
        more="Alarm changes that are not listed: {count}",
        test_subject="Test of your alarm notifications",
        test_content="This is a test message. Your alarm notifications are sent to this address.",
    ),
    "zh": EmailTexts(
        columns=("时间", "级别", "变化", "告警", "设备", "值"),
        terms={
            "CRITICAL": "紧急",
            "MAJOR": "重要",
            "MINOR": "次要",
            "WARNING": "警告",
            "INFO": "提示",
            "raised": "告警产生",
            "cleared": "告警清除",
        },
        subject="{severity}{change}：{content}（{device}）",
        many="{count} 条告警变化",
        more="未列出的告警变化：{count} 条",
        test_subject="告警通知测试",
        test_content="这是一条测试消息。您的告警通知将发送到此邮箱。",
    ),
}


@dataclass(frozen=True)
class NotificationChannels:
    """Sends notifications by email and webhook."""

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
        listed, more = alarms[-MAX_LISTED_ALARMS:], max(len(alarms) - MAX_LISTED_ALARMS, 0) + missed
        if channel == "MAIL":
            subject = build_subject(TEXTS_BY_LANGUAGE[settings.language], listed, more)
            content = build_content(settings, listed, more)
            await self._send_email(subscriber, subject, content, SEND_SECONDS)
        elif settings.webhook is not None:
            body = {"tenant": subscriber.tenant, "alarms": listed, "more": more}
            request = build_webhook_request(settings.webhook.url, body, settings.webhook.secret)
            await self.http.send_webhook(request, SEND_SECONDS)

    async def send_test(
        self, subscriber: Subscriber, settings: Notifications, channel: Channel
    ) -> None:
        """Send a message that is marked as a test; raise `NodeFailed`."""
        if channel == "MAIL":
            texts = TEXTS_BY_LANGUAGE[settings.language]
            content = f"<p>{texts.test_content}</p>"
            await self._send_email(subscriber, texts.test_subject, content, TEST_SECONDS)
        elif settings.webhook is not None:
            body = {"tenant": subscriber.tenant, "alarms": [], "more": 0, "test": True}
            request = build_webhook_request(settings.webhook.url, body, settings.webhook.secret)
            await self.http.send_webhook(request, TEST_SECONDS)

    async def _send_email(
        self, subscriber: Subscriber, subject: str, content: str, seconds: float
    ) -> None:
        server = await self.credentials.find_mail_server(subscriber.tenant)
        if server is None:
            raise NodeFailed("the tenant has no mail server; add its SMTP credential")
        email = EmailMessage(
            sender=server.username,
            sender_name=SENDER_NAME,
            recipients=[subscriber.login],
            subject=subject,
            content=content,
        )
        await self.mail.send(server, email, seconds)


def build_subject(texts: EmailTexts, listed: Sequence[AlarmSummary], more: int) -> str:
    """Return the subject of an email."""
    if len(listed) == 1 and not more:
        (alarm,) = listed
        text = texts.subject.format(
            severity=texts.terms.get(alarm.severity, alarm.severity),
            change=texts.terms.get(alarm.change, alarm.change),
            content=alarm.content,
            device=alarm.device_name,
        )
    else:
        text = texts.many.format(count=len(listed) + more)
    return " ".join(text.split())[:200]


def build_content(settings: Notifications, listed: Sequence[AlarmSummary], more: int) -> str:
    """Return an email as HTML in the user's language and time zone."""
    texts = TEXTS_BY_LANGUAGE[settings.language]
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in _table_cells(settings, alarm))}</tr>"
        for alarm in listed
    )
    head = "".join(f"<th align=left>{title}</th>" for title in texts.columns)
    rest = f"<p>{texts.more.format(count=more)}</p>" if more else ""
    return f"<table><tr>{head}</tr>{rows}</table>{rest}"


def _table_cells(settings: Notifications, alarm: AlarmSummary) -> list[str]:
    terms = TEXTS_BY_LANGUAGE[settings.language].terms
    at = alarm.cleared_at if alarm.change == "cleared" and alarm.cleared_at else alarm.raised_at
    return [
        f"{from_ms(at).astimezone(settings.zone):%Y-%m-%d %H:%M:%S %Z}",
        terms.get(alarm.severity, alarm.severity),
        terms.get(alarm.change, alarm.change),
        alarm.content,
        alarm.device_name,
        _format_value(alarm.value),
    ]


def _format_value(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()
