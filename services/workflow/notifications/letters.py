"""Writes what users are told, and hands it over."""

from collections.abc import Sequence
from html import escape
from typing import Any

import msgspec

from libs.common.clock import from_ms
from services.workflow.errors import NodeFailed
from services.workflow.nodes.email import SmtpConfig
from services.workflow.nodes.webhook import signed
from services.workflow.notifications.model import Channel, Notifications, Subscriber, Told
from services.workflow.outgoing.http import HttpRequest, OutgoingHttp
from services.workflow.outgoing.mail import Letter, MailServer, OutgoingMail

SECONDS = 30.0
"""That one message may take."""
MOST_LISTED = 100
"""Alarms that a message lists; of more it says how many."""
SENDER = "Thingway"
_OK = range(200, 300)


class Post:
    """Sends mails and webhooks."""

    def __init__(self, mail: OutgoingMail, http: OutgoingHttp) -> None:
        self._mail = mail
        self._http = http

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
        if channel == "MAIL" and settings.mail is not None:
            server = mail_server(settings.mail.server)
            to = settings.mail.address or subscriber.login
            letter = Letter(
                sender=server.username,
                sender_name=SENDER,
                recipients=[to],
                subject=subject_of(listed, more),
                content=content_of(settings, listed, more),
            )
            await self._mail.send(server, letter, SECONDS)
        elif channel == "WEBHOOK" and settings.webhook is not None:
            body = msgspec.json.encode(
                {"tenant": subscriber.tenant, "alarms": listed, "more": more}
            )
            headers = {"Content-Type": "application/json"}
            if settings.webhook.secret:
                headers |= signed(settings.webhook.secret, body)
            wanted = HttpRequest(
                method="POST", url=settings.webhook.url, headers=headers, body=body
            )
            answer = await self._http.send(wanted, SECONDS)
            if answer.status not in _OK:
                raise NodeFailed(f"the webhook was answered with {answer.status}")


def mail_server(config: SmtpConfig) -> MailServer:
    """What takes a user's mail: the one place that says so."""
    return MailServer(
        host=config.host,
        port=config.port,
        encryption=config.encryption,
        username=config.username,
        password=config.password,
    )


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
