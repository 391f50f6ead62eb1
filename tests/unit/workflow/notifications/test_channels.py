"""Emails about alarms, in the language of their receiver."""

import re
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from deploy.local.process import PROJECT_ROOT
from services.workflow.notifications.channels import TEXTS_BY_LANGUAGE, NotificationChannels
from services.workflow.notifications.store import (
    AlarmSummary,
    Language,
    Notifications,
    Subscriber,
)
from services.workflow.outgoing.mail import EmailMessage

ALARM = AlarmSummary(
    change="raised", alarm_id=1, severity="MAJOR", content="hot", raised_at=1, device_id=5,
    device_name="oven",
)  # fmt: skip


class Mail:
    """A mail server that keeps emails."""

    def __init__(self) -> None:
        self.sent: list[EmailMessage] = []

    async def find_mail_server(self, _: str) -> Any:
        return SimpleNamespace(username="a@example.com")

    async def send(self, _: Any, email: EmailMessage, __: float) -> None:
        self.sent.append(email)


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", ["MAJOR raised: hot (oven)", "5 alarm changes", "Test of your alarm notifications"]),
        ("zh", ["重要告警产生：hot（oven）", "5 条告警变化", "告警通知测试"]),
    ],
)
async def test_an_email_has_the_language_of_its_receiver(language: Any, expected: list[str]):
    """The subject, the titles, the severity and the change; the alarm's text is the rule's."""
    mail: Any = Mail()
    channels = NotificationChannels(mail, mail, mail)
    settings = Notifications(mail=True, language=language)
    user = Subscriber(id=1, tenant="t", login="b@example.com", settings=settings)
    await channels.send(user, settings, "MAIL", [ALARM], 0)
    await channels.send(user, settings, "MAIL", [ALARM], 4)
    await channels.send_test(user, settings, "MAIL")
    assert [email.subject for email in mail.sent] == expected
    texts = TEXTS_BY_LANGUAGE[language]
    for text in (*texts.columns, texts.terms.get("MAJOR", "MAJOR"), texts.more.format(count=4)):
        assert text in mail.sent[1].content
    assert texts.test_content in mail.sent[2].content


def test_emails_and_console_use_the_same_words():
    """Each language of the console has texts, and the Chinese terms are its terms."""
    catalogue = (PROJECT_ROOT / "console/src/features/alarms/zh.ts").read_text()
    shown = dict(re.findall(r'"(?:severity|notify)\.(\w+)": "(.*)"', catalogue))
    assert TEXTS_BY_LANGUAGE["zh"].terms.items() <= shown.items()
    languages = (PROJECT_ROOT / "console/src/i18n/index.svelte.ts").read_text()
    (kinds,) = re.findall(r"type Language = (.*);", languages)
    assert set(TEXTS_BY_LANGUAGE) == set(get_args(Language)) == set(re.findall(r'"(\w+)"', kinds))
