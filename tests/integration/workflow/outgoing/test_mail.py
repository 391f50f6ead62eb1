"""Mail of flows, handed over to a real server: plain, STARTTLS, TLS."""

import ssl
from collections.abc import Iterator
from dataclasses import replace
from email import message_from_bytes, policy

import pytest
from aiosmtpd.controller import Controller

from deploy.platform import ports
from services.workflow.errors import NodeFailed
from services.workflow.outgoing.mail import (
    EmailMessage,
    MailServer,
    OutgoingMail,
    build_mime_message,
)
from tests.integration.workflow.outgoing.conftest import LOCAL, Post

LETTER = EmailMessage(
    sender="flows@example.com",
    sender_name="Flöws, Inc.",
    recipients=["one@example.com", "two@example.com"],
    subject="It is hot: 31 °C",
    content="<p>Grüße</p>",
)


@pytest.fixture
def server(post, encryption) -> MailServer:
    """The mail server, with a login where there is encryption."""
    found = MailServer(host="localhost", port=post.port, encryption=encryption)
    if encryption == "NONE":
        return found
    return replace(found, username="flows@example.com", password="right password")


@pytest.fixture
def mail(post) -> OutgoingMail:
    """Trusts the server's certificate."""
    return OutgoingMail(LOCAL, ssl.create_default_context(cafile=post.certificate.chain))


async def test_a_letter_arrives(mail, server, post, encryption):
    """With its addresses, its subject and its content as HTML; encrypted as asked."""
    await mail.send(server, LETTER, 10)

    (envelope,) = post.letters
    message = message_from_bytes(envelope.content, policy=policy.default)
    assert envelope.mail_from == "flows@example.com"
    assert envelope.rcpt_tos == ["one@example.com", "two@example.com"]
    assert message["From"].addresses[0].display_name == "Flöws, Inc."
    assert message["Subject"] == "It is hot: 31 °C"
    assert message.get_content_type() == "text/html"
    assert message.get_content().strip() == "<p>Grüße</p>"
    assert post.encrypted == [encryption != "NONE"]
    assert post.logins == ([] if encryption == "NONE" else [b"flows@example.com"])


async def test_the_error_of_a_wrong_password_does_not_contain_it(mail, server, post, encryption):
    """It contains the server's text."""
    if encryption == "NONE":
        server = replace(server, username="flows@example.com")
    with pytest.raises(NodeFailed) as failed:
        await mail.send(replace(server, password="wrong password"), LETTER, 10)
    assert "localhost did not accept the email" in str(failed.value)
    assert "wrong password" not in str(failed.value)
    assert post.letters == []


@pytest.fixture
def relay(authority) -> Iterator[Post]:
    """A mail server without logins, as there are on networks of their own."""
    handler = Post("127.0.0.1", 0, authority)
    controller = Controller(handler, hostname="127.0.0.1", port=ports.claim_random())
    controller.start()
    handler.port = controller.port
    yield handler
    controller.stop()


async def test_a_server_without_logins_gets_the_letter(relay):
    """The password is not sent to a server without logins."""
    server = MailServer(
        host="127.0.0.1", port=relay.port, encryption="NONE", username="u@x.io", password="secret"
    )

    await OutgoingMail(LOCAL).send(server, LETTER, 10)

    assert [letter.rcpt_tos for letter in relay.letters] == [["one@example.com", "two@example.com"]]
    assert relay.logins == []


async def test_a_certificate_that_is_not_trusted_ends_it(server, post, encryption):
    """Nothing is sent to who cannot show who it is; the password neither."""
    mail = OutgoingMail(LOCAL)
    if encryption == "NONE":
        await mail.send(server, LETTER, 10)
        assert len(post.letters) == 1
        return
    with pytest.raises(NodeFailed, match="certificate"):
        await mail.send(server, LETTER, 10)
    assert (post.letters, post.logins) == ([], [])


async def test_addresses_that_are_not_public_are_refused(server, post):
    """As for HTTP."""
    with pytest.raises(NodeFailed, match="localhost is not a public address"):
        await OutgoingMail(()).send(server, LETTER, 10)
    assert post.letters == []


@pytest.mark.parametrize(
    "email",
    [
        replace(LETTER, sender="nobody"),
        replace(LETTER, sender="@example.com"),
        replace(LETTER, recipients=[]),
        replace(LETTER, recipients=["a@example.com."]),
        replace(LETTER, recipients=["a@b.c\r\nBcc: d@e.f"]),
        replace(LETTER, subject="a\r\nBcc: d@e.f"),
        replace(LETTER, sender_name="a\r\nBcc: d@e.f"),
    ],
)
def test_nothing_can_be_put_into_the_headers(email):
    """Line breaks and addresses that are none are refused."""
    with pytest.raises(NodeFailed, match=r"is invalid|has no recipient"):
        build_mime_message(email)


@pytest.mark.parametrize(
    "email",
    [
        LETTER,
        replace(LETTER, sender="flows@grüße.example", recipients=["a@bücher.example"]),
        replace(LETTER, sender_name='Bell\x07 "Inc" <a@b>', subject="31\x00 °C"),
        replace(LETTER, sender_name="A\x85B", subject="31\u2028°C"),
        replace(LETTER, subject="hot " * 400, content="<p>" + "x" * 5000),
        replace(LETTER, content=".\r\nFrom a\rb\x00\x0b\x1c\u2028"),
        replace(LETTER, content="温度 " * 300),
    ],
)
def test_a_letter_passes_a_strict_parser(email):
    """It has every header that RFC 5322 requires once, and nothing but short ASCII lines."""
    text = build_mime_message(email).as_bytes(policy=policy.SMTP)
    lines = text.split(b"\r\n")
    assert all(len(line) <= 78 and line.isascii() for line in lines)
    assert not any(byte < 32 for line in lines for byte in line)

    message = message_from_bytes(text, policy=policy.SMTP.clone(raise_on_defect=True))
    assert not [header for header, value in message.items() if value.defects]
    for header in ("Date", "From", "To", "Message-ID", "MIME-Version"):
        assert len(message.get_all(header)) == 1, header
    assert message["Date"].datetime.tzinfo is not None
    assert message.get_content().split() == email.content.replace("\r", "\n").split()
