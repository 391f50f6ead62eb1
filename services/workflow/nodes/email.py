"""`email`: a mail over SMTP."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec

from services.workflow.credentials.service import TenantCredentials
from services.workflow.errors import NodeFailed
from services.workflow.nodes.base import Group, NodeContext, Step
from services.workflow.nodes.parameters import Fault, Parameters, parameter
from services.workflow.outgoing.mail import (
    EmailMessage,
    Encryption,
    MailServer,
    OutgoingMail,
    is_address,
)

MOST_RECIPIENTS = 50
LONGEST_FIELD, LONGEST_SUBJECT, LONGEST_CONTENT = 254, 500, 10_000
LONGEST_SENT = 256 * 1024
"""Characters of a content whose references are replaced."""
_REFERENCE = "#{"

Field = Annotated[str, msgspec.Meta(max_length=LONGEST_FIELD)]


class SmtpConfig(msgspec.Struct, rename="camel"):
    """A server, and as whom; editors send it empty where the tenant's is used."""

    host: Field = ""
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] | None = None
    encryption: Encryption = "STARTTLS"
    username: Field = ""
    password: Annotated[str, msgspec.Meta(max_length=LONGEST_FIELD, extra={"secret": True})] = ""


class EmailConfig(msgspec.Struct, rename="camel"):
    """By what mail is sent."""

    smtp_config: SmtpConfig | None = None
    provider: Literal["SMTP"] | None = "SMTP"
    use_system_settings: bool = False
    """By the tenant's mail server, as the settings have it when the flow runs."""


class EmailParameters(Parameters):
    """What to send, and how."""

    secrets_go_to = ("emailConfig", "smtpConfig", "host")

    email_config: Annotated[
        EmailConfig, parameter("Server", "What takes the mail", ui="emailSendSource")
    ]
    recipients: Annotated[
        Annotated[list[Field], msgspec.Meta(min_length=1, max_length=MOST_RECIPIENTS)],
        parameter("Recipients", "Addresses", ui="emailRecipients"),
    ]
    subject: Annotated[str, parameter("Subject", max_length=LONGEST_SUBJECT)] = ""
    content: Annotated[
        str, parameter("Content", "HTML", ui="emailContent", max_length=LONGEST_CONTENT)
    ] = ""
    from_name: Annotated[str, parameter("Sender's name", max_length=LONGEST_FIELD)] | None = None
    from_address: (
        Annotated[
            str,
            parameter("Sender", "The user name of the server by default", max_length=LONGEST_FIELD),
        ]
        | None
    ) = None

    def faults(self) -> Iterable[Fault]:
        """Addresses that are none; references are looked at when they are known."""
        for place, one in enumerate(self.recipients):
            if _REFERENCE not in one and not is_address(one):
                yield Fault(f"recipients[{place}]", f"{one:.60} is no mail address")
        own = None if self.email_config.use_system_settings else self.email_config.smtp_config
        if own is None and not self.email_config.use_system_settings:
            yield Fault("emailConfig.smtpConfig", "is needed, unless useSystemSettings is true")
        if own is not None:
            if not own.host:
                yield Fault("emailConfig.smtpConfig.host", "must not be empty")
            if not own.port:
                yield Fault("emailConfig.smtpConfig.port", "must be from 1 to 65535")
        sender = self.from_address or (own.username if own is not None else _REFERENCE)
        if _REFERENCE not in sender and not is_address(sender):
            text = "must be a mail address, as the user name of the server is none"
            yield Fault("fromAddress", text)


class Email(Step[EmailParameters]):
    """Sends a mail; what came in goes on unchanged."""

    name = "email"
    title = "Email"
    description = "Sends a mail"
    group = Group.EXTERNAL

    def __init__(self, mail: OutgoingMail, credentials: TenantCredentials) -> None:
        self._mail = mail
        self._credentials = credentials

    async def run(self, context: NodeContext, parameters: EmailParameters, body: Any) -> Any:
        """Send; a dry run only looks whether it could be."""
        server = await self._server(context, parameters.email_config)
        email = _email(context, parameters, server)
        hand_over = self._mail.check if context.dry_run else self._mail.send
        await hand_over(server, email, context.seconds_left)
        return body

    async def _server(self, context: NodeContext, config: EmailConfig) -> MailServer:
        if not config.use_system_settings:
            own = context.texts(config.smtp_config or SmtpConfig())
            return MailServer(
                host=own.host,
                port=own.port or 0,
                encryption=own.encryption,
                username=own.username,
                password=own.password,
            )
        found = await self._credentials.mail_server(context.tenant)
        if found is None:
            raise NodeFailed("the settings have no mail server")
        return found


def _email(context: NodeContext, parameters: EmailParameters, server: MailServer) -> EmailMessage:
    recipients = [context.text(one) for one in parameters.recipients]
    sender = context.text(parameters.from_address or "") or server.username
    for one in (*recipients, sender):
        if not is_address(one):
            raise NodeFailed(f"{one:.60} is no mail address")
    content = context.text(parameters.content)
    if len(content) > LONGEST_SENT:
        raise NodeFailed(f"the content has more than {LONGEST_SENT} characters")
    return EmailMessage(
        sender=sender,
        sender_name=context.text(parameters.from_name or ""),
        recipients=recipients,
        subject=" ".join(context.text(parameters.subject).split())[:LONGEST_SUBJECT],
        content=content,
    )
