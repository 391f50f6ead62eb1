"""What external nodes need of the outside; each raises `NodeFailed` with what went wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
Encryption = Literal["TLS", "STARTTLS", "NONE"]


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """One request."""

    method: Method
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    redirects: int = 0
    """Most redirects that are followed."""


@dataclass(frozen=True)
class HttpAnswer:
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    """Names in small letters; of a name that is there twice the last."""
    body: bytes


class Http(Protocol):
    """Sends requests."""

    async def send(self, request: HttpRequest, seconds: float) -> HttpAnswer:
        """Send one and read the answer, whatever its status."""


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


class Mail(Protocol):
    """Sends mail."""

    async def send(self, server: MailServer, letter: Letter, seconds: float) -> None:
        """Hand a letter over to a server."""


@dataclass(frozen=True, kw_only=True)
class Broker:
    """An MQTT broker, and as whom."""

    host: str
    port: int
    tls: bool
    client_id: str = ""
    username: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """A message for a topic."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False


class Mqtt(Protocol):
    """Publishes."""

    async def publish(self, broker: Broker, publication: Publication, seconds: float) -> None:
        """Connect, publish, and disconnect."""
