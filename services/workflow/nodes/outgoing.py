"""Nodes that send to other servers: `httpRequest`, `email`, `mqttPublish`."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec

from libs.common.bus.hops import hops_header
from libs.common.decoding import JSON_ERRORS, decode_json, decode_text, is_json
from services.workflow.credentials.service import TenantCredentials
from services.workflow.errors import NodeFailed
from services.workflow.expressions.references import format_text
from services.workflow.nodes.base import NodeContext, PaletteGroup, SampleOutput, Step
from services.workflow.nodes.parameters import ParameterFault, Parameters, parameter_meta
from services.workflow.outgoing.http import HttpAnswer, HttpRequest, Method, OutgoingHttp
from services.workflow.outgoing.mail import (
    EmailMessage,
    Encryption,
    MailServer,
    OutgoingMail,
    is_email_address,
)
from services.workflow.outgoing.mqtt import MqttBroker, OutgoingMqtt, Publication

LONGEST_URL, LONGEST_BODY = 4096, 100_000
MAX_MAP_ENTRIES = 50
MAX_REDIRECTS = 3
JSON_TYPE = "application/json"
FORM_TYPE = "application/x-www-form-urlencoded"
CONTENT_TYPES = (JSON_TYPE, FORM_TYPE, "text/plain")
_CONTENT_TYPE_HEADER = "content-type"


class HttpRequestParameters(Parameters):
    """The request to send."""

    secret_destination_path = ("url",)

    url: Annotated[
        str, parameter_meta("URL", "Address to call", min_length=1, max_length=LONGEST_URL)
    ]
    method: Annotated[Method, parameter_meta("Method")] = "GET"
    """HTTP method; `GET` and `HEAD` have no body."""
    header: Annotated[
        dict[str, Any],
        parameter_meta(
            "Headers",
            "Headers of the request, which may contain credentials",
            ui="paramAssignInput",
            secret=True,
            max_length=MAX_MAP_ENTRIES,
        ),
    ] = msgspec.field(default_factory=dict)
    params: Annotated[
        dict[str, Any],
        parameter_meta(
            "Query", "Added to the URL", ui="paramAssignInput", max_length=MAX_MAP_ENTRIES
        ),
    ] = msgspec.field(default_factory=dict)
    body: Annotated[
        Any,
        parameter_meta(
            "Body",
            "Text is sent unchanged, all other values as JSON. `{type, value}` sets the content "
            "type: `application/json`, `application/x-www-form-urlencoded` or `text/plain`",
            ui="httpBodyInput",
        ),
    ] = None

    def find_faults(self) -> Iterable[ParameterFault]:
        """Yield a fault for a body that the method does not allow."""
        _, content = _split_type_and_content(self.body)
        if content not in (None, "") and self.method in ("GET", "HEAD"):
            yield ParameterFault("body", f"must be empty for {self.method}; choose another method")


class HttpRequestNode(Step[HttpRequestParameters]):
    """Sends a request. Returns `statusCode`, `responseHeaders`, `responseBody`.

    `responseBody` is None if the body cannot be decoded; `responseFault` is the reason, else None.
    """

    name = "httpRequest"
    title = "HTTP Request"
    description = "Sends a request to another system over HTTP"
    group = PaletteGroup.EXTERNAL

    def __init__(self, http: OutgoingHttp) -> None:
        self._http = http

    async def run(
        self, context: NodeContext, parameters: HttpRequestParameters, body: Any
    ) -> dict[str, Any] | SampleOutput:
        """Send the request; any status is a response. A dry run returns a sample."""
        request = _build_request(context, parameters)
        if context.dry_run:
            await self._http.check_request(request, context.seconds_left)
            sample = {"statusCode": 200, "responseHeaders": {}, "responseBody": {}}
            return SampleOutput(sample | {"responseFault": None})
        answer = await self._http.send(request, context.seconds_left)
        return {
            "statusCode": answer.status,
            "responseHeaders": dict(answer.headers),
            "responseBody": _decode_content(answer),
            "responseFault": answer.fault or None,
        }


def _build_request(context: NodeContext, parameters: HttpRequestParameters) -> HttpRequest:
    url = str(context.resolve_references(parameters.url))
    if query := _to_texts(context.resolve_references(parameters.params)):
        url = _with_query(url, urlencode(query))
    headers = _to_texts(context.resolve_references(parameters.header)) | hops_header(
        context.hops + 1
    )
    kind, content = _split_type_and_content(context.resolve_references(parameters.body))
    encoded = b""
    if kind == FORM_TYPE and isinstance(content, Mapping):
        encoded = urlencode(_to_texts(content)).encode()
    elif isinstance(content, str):
        encoded = content.encode()
    elif content is not None:
        encoded, kind = msgspec.json.encode(content), kind or JSON_TYPE
    if kind and encoded and _CONTENT_TYPE_HEADER not in (name.lower() for name in headers):
        headers["Content-Type"] = kind
    if len(encoded) > LONGEST_BODY:
        raise NodeFailed(f"the body must have at most {LONGEST_BODY} bytes")
    return HttpRequest(
        method=parameters.method,
        url=url,
        headers=headers,
        body=encoded,
        redirects=MAX_REDIRECTS,
    )


def _with_query(url: str, query: str) -> str:
    """Add a query to a URL, keeping its own query and dropping its fragment."""
    url, _, _ = url.partition("#")
    if "?" not in url:
        return f"{url}?{query}"
    return url + query if url.endswith(("?", "&")) else f"{url}&{query}"


def _split_type_and_content(body: Any) -> tuple[str, Any]:
    """Return the content type and content of a body in the form of editors."""
    if isinstance(body, dict) and body.keys() == {"type", "value"}:
        kind = body["type"] or ""
        if kind in ("", *CONTENT_TYPES):
            content = body["value"]
            return kind, None if not kind and not content else content
    return "", body


def _to_texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: format_text(value) for name, value in values.items() if value is not None}


def _decode_content(answer: HttpAnswer) -> Any:
    """Return decoded JSON, or any other body as text.

    Returns None for an empty body with a JSON type, and for a body with a fault.
    """
    if answer.fault:
        return None
    if is_json(answer.content_type):
        if not decode_text(answer.body, answer.content_type).strip():
            return None
        with suppress(*JSON_ERRORS):
            return decode_json(answer.body, answer.content_type)
    return decode_text(answer.body, answer.content_type)


MAX_RECIPIENTS = 50
LONGEST_FIELD, LONGEST_SUBJECT, LONGEST_CONTENT = 254, 500, 10_000
MAX_CONTENT_CHARACTERS = 256 * 1024
"""Maximum characters of the content of an email after its references are replaced."""
_REFERENCE_START = "#{"

Field = Annotated[str, msgspec.Meta(max_length=LONGEST_FIELD)]


class SmtpConfig(msgspec.Struct, rename="camel"):
    """A mail server and its login; empty if the tenant's server is used."""

    host: Field = ""
    """Name or IP address of the server."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] | None = None
    """Port of the server; required."""
    encryption: Encryption = "STARTTLS"
    """`TLS` encrypts from the start, `STARTTLS` before the login, `NONE` never."""
    username: Field = ""
    """Login at the server; empty: without login."""
    password: Annotated[str, msgspec.Meta(max_length=LONGEST_FIELD, extra={"secret": True})] = ""
    """Password of the login."""


class EmailConfig(msgspec.Struct, rename="camel"):
    """The mail server to use."""

    smtp_config: SmtpConfig | None = None
    """Required unless `useSystemSettings` is true, then ignored."""
    provider: Literal["SMTP"] | None = "SMTP"
    """Protocol of the mail server."""
    use_system_settings: Annotated[
        bool, msgspec.Meta(description="Whether to use the tenant's mail server")
    ] = False


class EmailParameters(Parameters):
    """The email to send."""

    secret_destination_path = ("emailConfig", "smtpConfig", "host")

    email_config: Annotated[
        EmailConfig, parameter_meta("Server", "The mail server to use", ui="emailSendSource")
    ]
    recipients: Annotated[
        Annotated[list[Field], msgspec.Meta(min_length=1, max_length=MAX_RECIPIENTS)],
        parameter_meta("Recipients", "Email addresses", ui="emailRecipients"),
    ]
    subject: Annotated[str, parameter_meta("Subject", max_length=LONGEST_SUBJECT)] = ""
    """Subject of the email."""
    content: Annotated[
        str, parameter_meta("Content", "HTML", ui="emailContent", max_length=LONGEST_CONTENT)
    ] = ""
    from_name: Annotated[str, parameter_meta("Sender's name", max_length=LONGEST_FIELD)] | None = (
        None
    )
    """Name of the sender."""
    from_address: (
        Annotated[
            str,
            parameter_meta(
                "Sender",
                "Email address. Default: the user name of the server",
                max_length=LONGEST_FIELD,
            ),
        ]
        | None
    ) = None

    def find_faults(self) -> Iterable[ParameterFault]:
        """Yield invalid addresses and server settings; references are checked later."""
        for place, recipient in enumerate(self.recipients):
            if _REFERENCE_START not in recipient and not is_email_address(recipient):
                yield ParameterFault(
                    f"recipients[{place}]", f"{recipient:.60} is not an email address"
                )
        server = None if self.email_config.use_system_settings else self.email_config.smtp_config
        if server is None and not self.email_config.use_system_settings:
            yield ParameterFault(
                "emailConfig.smtpConfig", "is required unless useSystemSettings is true"
            )
        if server is not None:
            if not server.host:
                yield ParameterFault("emailConfig.smtpConfig.host", "must not be empty")
            if not server.port:
                yield ParameterFault("emailConfig.smtpConfig.port", "must be from 1 to 65535")
        sender = self.from_address or (server.username if server is not None else _REFERENCE_START)
        if _REFERENCE_START not in sender and not is_email_address(sender):
            text = "must be an email address, because the server's user name is not an address"
            yield ParameterFault("fromAddress", text)


class Email(Step[EmailParameters]):
    """Sends an email. The output is the input."""

    name = "email"
    title = "Email"
    description = "Sends an email"
    group = PaletteGroup.EXTERNAL

    def __init__(self, mail: OutgoingMail, credentials: TenantCredentials) -> None:
        self._mail = mail
        self._credentials = credentials

    async def run(self, context: NodeContext, parameters: EmailParameters, body: Any) -> Any:
        """Send the email; a dry run only checks the email and the server's host."""
        server = await self._get_mail_server(context, parameters.email_config)
        email = _build_email(context, parameters, server)
        deliver = self._mail.check_email if context.dry_run else self._mail.send
        await deliver(server, email, context.seconds_left)
        return body

    async def _get_mail_server(self, context: NodeContext, config: EmailConfig) -> MailServer:
        if not config.use_system_settings:
            server = context.resolve_texts(config.smtp_config or SmtpConfig())
            return MailServer(
                host=server.host,
                port=server.port or 0,
                encryption=server.encryption,
                username=server.username,
                password=server.password,
            )
        mail_server = await self._credentials.find_mail_server(context.tenant)
        if mail_server is None:
            raise NodeFailed("the tenant has no mail server; add its SMTP credential")
        return mail_server


def _build_email(
    context: NodeContext, parameters: EmailParameters, server: MailServer
) -> EmailMessage:
    recipients = [context.resolve_text(recipient) for recipient in parameters.recipients]
    sender = context.resolve_text(parameters.from_address or "") or server.username
    for address in (*recipients, sender):
        if not is_email_address(address):
            raise NodeFailed(f"{address:.60} is not an email address")
    content = context.resolve_text(parameters.content)
    if len(content) > MAX_CONTENT_CHARACTERS:
        raise NodeFailed(f"the content must have at most {MAX_CONTENT_CHARACTERS} characters")
    return EmailMessage(
        sender=sender,
        sender_name=context.resolve_text(parameters.from_name or ""),
        recipients=recipients,
        subject=" ".join(context.resolve_text(parameters.subject).split())[:LONGEST_SUBJECT],
        content=content,
    )


MAX_TOPIC_CHARACTERS = 1024
MAX_PAYLOAD_BYTES = 256 * 1024
"""Maximum bytes of a payload."""


class MqttPublishParameters(Parameters):
    """The message and the broker."""

    secret_destination_path = ("broker", "host")

    broker: Annotated[MqttBroker, parameter_meta("Broker", "The MQTT broker")]
    topic: Annotated[str, parameter_meta("Topic", min_length=1, max_length=MAX_TOPIC_CHARACTERS)]
    """Topic to publish to, without `+` and `#`."""
    payload: Annotated[
        Any,
        parameter_meta(
            "Payload", "Text is sent unchanged, all other values as JSON. Default: the input"
        ),
    ] = None
    qos: Annotated[int, parameter_meta("QoS", "0, 1 or 2", ge=0, le=2)] = 0
    retain: Annotated[bool, parameter_meta("Retain", "Whether the broker retains the message")] = (
        False
    )

    def find_faults(self) -> Iterable[ParameterFault]:
        """Yield a fault for an invalid topic."""
        if reason := _find_topic_fault(self.topic.replace("#{", "")):
            yield ParameterFault("topic", reason)


class MqttPublish(Step[MqttPublishParameters]):
    """Publishes a message. The output is the input."""

    name = "mqttPublish"
    title = "MQTT Publish"
    description = "Publishes a message to an MQTT broker"
    group = PaletteGroup.EXTERNAL

    def __init__(self, mqtt: OutgoingMqtt) -> None:
        self._mqtt = mqtt

    async def run(self, context: NodeContext, parameters: MqttPublishParameters, body: Any) -> Any:
        """Publish the message; a dry run only checks the broker's host."""
        broker = context.resolve_texts(parameters.broker)
        publication = _build_publication(context, parameters, body)
        if context.dry_run:
            await self._mqtt.check_broker(broker, context.seconds_left)
        else:
            await self._mqtt.publish(broker, publication, context.seconds_left)
        return body


def _build_publication(
    context: NodeContext, parameters: MqttPublishParameters, body: Any
) -> Publication:
    topic = context.resolve_text(parameters.topic)
    if reason := _find_topic_fault(topic):
        raise NodeFailed(f"the topic {topic:.60} {reason}")
    content = body if parameters.payload is None else context.resolve_references(parameters.payload)
    payload = content.encode() if isinstance(content, str) else msgspec.json.encode(content)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise NodeFailed(f"the payload must have at most {MAX_PAYLOAD_BYTES} bytes")
    return Publication(topic=topic, payload=payload, qos=parameters.qos, retain=parameters.retain)


def _find_topic_fault(topic: str) -> str:
    if any(mark in topic for mark in "+#\0"):
        return "must not have +, # or null characters"
    return "" if topic.strip() else "must not be empty"
