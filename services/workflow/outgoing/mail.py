"""Emails of flows (aiosmtplib)."""

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage as MimeMessage
from email.utils import localtime, make_msgid
from functools import cached_property
from typing import Literal

from aiosmtplib import SMTP, SMTPException, SMTPHeloError

from libs.common.http.outgoing import connect_outgoing_socket
from services.workflow.errors import NodeFailed
from services.workflow.outgoing.hosts import check_host, translate_delivery_errors

MAX_DELIVERY_SECONDS = 30.0
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters and Unicode separators. Line breaks are missing: headers reject them."""
EHLO_HOST_NAME = "thingway"
"""Host name in greetings to servers. It reveals nothing about the machine."""

Encryption = Literal["TLS", "STARTTLS", "NONE"]
is_email_address = re.compile(r"[^\s@<>,;:\"()\[\]\\]{1,64}@[A-Za-z0-9.-]{1,189}").fullmatch
"""Return whether a text looks like an email address."""


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """A mail server and its login."""

    host: str
    port: int
    encryption: Encryption
    username: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class EmailMessage:
    """An email. `content` is HTML."""

    sender: str
    sender_name: str
    recipients: Sequence[str]
    subject: str
    content: str


class OutgoingMail:
    """Sends emails through mail servers of tenants."""

    def __init__(
        self, allowed_networks: tuple[str, ...], trusted: ssl.SSLContext | None = None
    ) -> None:
        """Use `trusted` to verify certificates, by default the system's context."""
        self._allowed_networks = allowed_networks
        self._given = trusted

    @cached_property
    def _trusted(self) -> ssl.SSLContext:
        """The TLS context, read with the first mail, because that takes 30 ms."""
        return self._given or ssl.create_default_context()

    async def check_email(self, server: MailServer, email: EmailMessage, seconds: float) -> None:
        """Validate an email and the server's host without connecting; raise `NodeFailed`."""
        build_mime_message(email)
        await check_host(server.host, server.port, self._allowed_networks, seconds)

    async def send(self, server: MailServer, email: EmailMessage, seconds: float) -> None:
        """Send an email; an encrypted connection needs a valid certificate.

        Raises `NodeFailed` if the server does not accept the email within `seconds`.
        """
        message = build_mime_message(email)
        async with translate_delivery_errors(
            server.host, min(seconds, MAX_DELIVERY_SECONDS), "the email", SMTPException
        ):
            await self._send(server, message)

    async def _send(self, server: MailServer, message: MimeMessage) -> None:
        connection = await connect_outgoing_socket(server.host, server.port, self._allowed_networks)
        client = SMTP(
            hostname=server.host,
            sock=connection,
            use_tls=server.encryption == "TLS",
            start_tls=server.encryption == "STARTTLS",
            tls_context=self._trusted if server.encryption != "NONE" else None,
            local_hostname=EHLO_HOST_NAME,
            timeout=MAX_DELIVERY_SECONDS,
        )
        try:
            await client.connect()
            if server.username and await _supports_login(client):
                await client.login(server.username, server.password)
            await client.send_message(message)
            await client.quit()
        finally:
            client.close()  # closing `connection` here would break its transport


async def _supports_login(client: SMTP) -> bool:
    """Return whether the server supports logins."""
    try:
        await client.ehlo()
    except SMTPHeloError:  # an old server without extensions
        return False
    return client.supports_extension("auth")


def build_mime_message(email: EmailMessage) -> MimeMessage:
    """Return an email as an RFC 5322 message of printable ASCII characters.

    Control characters in the sender's name and in the subject become blanks; the content is
    encoded. Raises `NodeFailed` if an address is missing or invalid, or if a header has a line
    break.
    """
    if not email.recipients:
        raise NodeFailed("the email has no recipient")
    message = MimeMessage()
    try:
        sender = _parse_address(email.sender, email.sender_name)
        message["Date"] = localtime()
        message["From"] = sender
        message["To"] = [_parse_address(recipient) for recipient in email.recipients]
        message["Subject"] = _CONTROL_CHARACTERS.sub(" ", email.subject)
        message["Message-ID"] = make_msgid(domain=sender.domain)
        message.set_content(email.content, subtype="html", cte="quoted-printable")
    except (ValueError, IndexError, MessageError) as error:
        raise NodeFailed(f"the email is invalid: {error!s:.200}") from error
    return message


def _parse_address(text: str, name: str = "") -> Address:
    """Parse an address; raise `ValueError` if it lacks a part.

    The domain becomes ASCII.
    """
    local, _, domain = text.rpartition("@")
    if not local or not domain:
        raise ValueError(f"{text} is not an email address")
    domain = domain.encode("idna").decode("ascii")
    return Address(_CONTROL_CHARACTERS.sub(" ", name), addr_spec=f"{local}@{domain}")
