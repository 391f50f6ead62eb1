"""Mail of flows (aiosmtplib)."""

import asyncio
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import localtime, make_msgid
from typing import Literal

from aiosmtplib import SMTP, SMTPException, SMTPHeloError

from libs.common.http.outgoing import AddressRefused, not_public, outgoing_socket
from services.workflow.errors import NodeFailed
from services.workflow.outgoing.hosts import check_host

MOST_SECONDS = 30.0
_CONTROLS = re.compile(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters and separators of Unicode, but for line breaks, which a header refuses."""
OUR_NAME = "thingway"
"""What servers are greeted with: nothing about the machine."""

Encryption = Literal["TLS", "STARTTLS", "NONE"]


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """A server that takes mail, and as whom."""

    host: str
    port: int
    encryption: Encryption
    username: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Letter:
    """A mail; `content` is HTML."""

    sender: str
    sender_name: str
    recipients: Sequence[str]
    subject: str
    content: str


class OutgoingMail:
    """Sends mail."""

    def __init__(self, allowed: tuple[str, ...], trusted: ssl.SSLContext | None = None) -> None:
        """`trusted`: how certificates are checked, by default as the system does."""
        self._allowed = allowed
        self._trusted = trusted or ssl.create_default_context()

    async def check(self, server: MailServer, letter: Letter, seconds: float) -> None:
        """Judge a letter and its server without connecting to it."""
        message_of(letter)
        await check_host(server.host, server.port, self._allowed, seconds)

    async def send(self, server: MailServer, letter: Letter, seconds: float) -> None:
        """Hand a letter over; the certificate of a server that encrypts must be valid."""
        message = message_of(letter)
        try:
            async with asyncio.timeout(min(seconds, MOST_SECONDS)):
                await self._send(server, message)
        except TimeoutError as error:
            raise NodeFailed(f"{server.host} did not answer in time") from error
        except AddressRefused as error:
            raise NodeFailed(not_public(server.host)) from error
        except (SMTPException, OSError, ValueError) as error:
            raise NodeFailed(f"{server.host} did not take the mail: {error!s:.200}") from error

    async def _send(self, server: MailServer, message: EmailMessage) -> None:
        connection = await outgoing_socket(server.host, server.port, self._allowed)
        client = SMTP(
            hostname=server.host,
            sock=connection,
            use_tls=server.encryption == "TLS",
            start_tls=server.encryption == "STARTTLS",
            tls_context=self._trusted if server.encryption != "NONE" else None,
            local_hostname=OUR_NAME,
            timeout=MOST_SECONDS,
        )
        try:
            await client.connect()
            if server.username and await _takes_logins(client):
                await client.login(server.username, server.password)
            await client.send_message(message)
            await client.quit()
        finally:
            client.close()  # the connection is its own: closing that here would trip its transport


async def _takes_logins(client: SMTP) -> bool:
    """Whether the server offers to log in; one that does not says itself whose mail it takes."""
    try:
        await client.ehlo()
    except SMTPHeloError:  # an old one, which knows no extensions
        return False
    return client.supports_extension("auth")


def message_of(letter: Letter) -> EmailMessage:
    """Return a letter as an RFC 5322 message of printable ASCII characters.

    Control characters in the sender's name and in the subject become blanks; the content is
    encoded. Raise `NodeFailed` if an address is missing or not valid, or if a header has a line
    break.
    """
    if not letter.recipients:
        raise NodeFailed("the mail cannot be written: it has no recipient")
    message = EmailMessage()
    try:
        sender = _address(letter.sender, letter.sender_name)
        message["Date"] = localtime()
        message["From"] = sender
        message["To"] = [_address(recipient) for recipient in letter.recipients]
        message["Subject"] = _CONTROLS.sub(" ", letter.subject)
        message["Message-ID"] = make_msgid(domain=sender.domain)
        message.set_content(letter.content, subtype="html", cte="quoted-printable")
    except (ValueError, IndexError, MessageError) as error:
        raise NodeFailed(f"the mail cannot be written: {error!s:.200}") from error
    return message


def _address(text: str, name: str = "") -> Address:
    """Parse an address; raise `ValueError` if it lacks a part. Its domain becomes ASCII."""
    local, _, domain = text.rpartition("@")
    if not local or not domain:
        raise ValueError(f"{text} is not an e-mail address")
    domain = domain.encode("idna").decode("ascii")
    return Address(_CONTROLS.sub(" ", name), addr_spec=f"{local}@{domain}")
