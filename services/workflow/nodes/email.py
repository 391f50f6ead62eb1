"""`email`: sends an e-mail over SMTP."""

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
"""Maximum characters of a content with replaced references."""
_REFERENCE = "#{"

Field = Annotated[str, msgspec.Meta(max_length=LONGEST_FIELD)]


class SmtpConfig(msgspec.Struct, rename="camel"):
    """A mail server and its login; empty if the tenant's server is used."""

    host: Field = ""
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] | None = None
    encryption: Encryption = "STARTTLS"
    username: Field = ""
    password: Annotated[str, msgspec.Meta(max_length=LONGEST_FIELD, extra={"secret": True})] = ""


class EmailConfig(msgspec.Struct, rename="camel"):
    """The mail server to use."""

    smtp_config: SmtpConfig | None = None
    provider: Literal["SMTP"] | None = "SMTP"
    use_system_settings: bool = False
    """Whether to use the mail server in the tenant's settings at the time of the run."""


class EmailParameters(Parameters):
    """The e-mail to send."""

    secrets_go_to = ("emailConfig", "smtpConfig", "host")

    email_config: Annotated[
        EmailConfig, parameter("Server", "The mail server to use", ui="emailSendSource")
    ]
    recipients: Annotated[
        Annotated[list[Field], msgspec.Meta(min_length=1, max_length=MOST_RECIPIENTS)],
        parameter("Recipients", "E-mail addresses", ui="emailRecipients"),
    ]
    subject: Annotated[str, parameter("Subject", max_length=LONGEST_SUBJECT)] = ""
    content: Annotated[
        str, parameter("Content", "HTML", ui="emailContent", max_length=LONGEST_CONTENT)
    ] = ""
    from_name: Annotated[str, parameter("Sender's name", max_length=LONGEST_FIELD)] | None = None
    from_address: (
        Annotated[
            str,
            parameter("Sender", "Default: the user name of the server", max_length=LONGEST_FIELD),
        ]
        | None
    ) = None

    def faults(self) -> Iterable[Fault]:
        """Yield invalid addresses and server settings; references are checked later."""
        for place, recipient in enumerate(self.recipients):
            if _REFERENCE not in recipient and not is_address(recipient):
                yield Fault(f"recipients[{place}]", f"{recipient:.60} is not an e-mail address")
        server = None if self.email_config.use_system_settings else self.email_config.smtp_config
        if server is None and not self.email_config.use_system_settings:
            yield Fault("emailConfig.smtpConfig", "is required unless useSystemSettings is true")
        if server is not None:
            if not server.host:
                yield Fault("emailConfig.smtpConfig.host", "must not be empty")
            if not server.port:
                yield Fault("emailConfig.smtpConfig.port", "must be from 1 to 65535")
        sender = self.from_address or (server.username if server is not None else _REFERENCE)
        if _REFERENCE not in sender and not is_address(sender):
            text = "must be an e-mail address, because the server's user name is not an address"
            yield Fault("fromAddress", text)


class Email(Step[EmailParameters]):
    """Sends an e-mail. The output is the input."""

    name = "email"
    title = "Email"
    description = "Sends an e-mail"
    group = Group.EXTERNAL

    def __init__(self, mail: OutgoingMail, credentials: TenantCredentials) -> None:
        self._mail = mail
        self._credentials = credentials

    async def run(self, context: NodeContext, parameters: EmailParameters, body: Any) -> Any:
        """Send the e-mail; a dry run only checks the e-mail and the server's host."""
        server = await self._server(context, parameters.email_config)
        email = _build_email(context, parameters, server)
        deliver = self._mail.check if context.dry_run else self._mail.send
        await deliver(server, email, context.seconds_left)
        return body

    async def _server(self, context: NodeContext, config: EmailConfig) -> MailServer:
        if not config.use_system_settings:
            server = context.resolve_texts(config.smtp_config or SmtpConfig())
            return MailServer(
                host=server.host,
                port=server.port or 0,
                encryption=server.encryption,
                username=server.username,
                password=server.password,
            )
        found = await self._credentials.find_mail_server(context.tenant)
        if found is None:
            raise NodeFailed("the tenant has no mail server; add its SMTP credential")
        return found


def _build_email(
    context: NodeContext, parameters: EmailParameters, server: MailServer
) -> EmailMessage:
    recipients = [context.resolve_text(recipient) for recipient in parameters.recipients]
    sender = context.resolve_text(parameters.from_address or "") or server.username
    for address in (*recipients, sender):
        if not is_address(address):
            raise NodeFailed(f"{address:.60} is not an e-mail address")
    content = context.resolve_text(parameters.content)
    if len(content) > LONGEST_SENT:
        raise NodeFailed(f"the content must have at most {LONGEST_SENT} characters")
    return EmailMessage(
        sender=sender,
        sender_name=context.resolve_text(parameters.from_name or ""),
        recipients=recipients,
        subject=" ".join(context.resolve_text(parameters.subject).split())[:LONGEST_SUBJECT],
        content=content,
    )
