"""MQTT messages of flows (aiomqtt), with one connection each."""

import ssl
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from aiomqtt import Client, MqttError

from libs.common.http.outgoing import resolve_outgoing_addresses
from services.workflow.outgoing.hosts import check_host, translate_delivery_errors

MAX_PUBLISH_SECONDS = 30.0
LONGEST_FIELD, LONGEST_PASSWORD = 254, 1000


class MqttBroker(msgspec.Struct, rename="camel"):
    """A broker and its login."""

    host: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_FIELD)]
    """Name or IP address of the broker."""
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 1883
    """Port of the broker."""
    tls: bool = False
    """Whether to connect with TLS."""
    client_id: Annotated[str, msgspec.Meta(max_length=LONGEST_FIELD)] = ""
    """MQTT client id; empty: a random one."""
    username: Annotated[str, msgspec.Meta(max_length=LONGEST_FIELD)] = ""
    """Login at the broker; empty: without login."""
    password: Annotated[str, msgspec.Meta(max_length=LONGEST_PASSWORD, extra={"secret": True})] = ""
    """Password of the login."""

    def __repr__(self) -> str:
        return f"MqttBroker({self.host}:{self.port})"


@dataclass(frozen=True, kw_only=True)
class Publication:
    """A message for a topic."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False


class _NamedContext(ssl.SSLContext):
    """Verifies certificates for the broker's name, while connecting to its address."""

    name: str

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """Wrap a socket for the broker's name."""
        return super().wrap_socket(*arguments, **{**options, "server_hostname": self.name})


class OutgoingMqtt:
    """Publishes messages to MQTT brokers of tenants."""

    def __init__(self, allowed_networks: tuple[str, ...], authorities: str | None = None) -> None:
        """Trust the certificates in the file `authorities`, by default the system's."""
        self._allowed_networks = allowed_networks
        self._authorities = authorities

    async def check_broker(self, broker: MqttBroker, seconds: float) -> None:
        """Check the host of a broker without connecting."""
        await check_host(broker.host, broker.port, self._allowed_networks, seconds)

    async def publish(self, broker: MqttBroker, publication: Publication, seconds: float) -> None:
        """Connect, publish, and wait for the acknowledgement that the QoS requires.

        Raises `NodeFailed`, also after `seconds`.
        """
        remaining = min(seconds, MAX_PUBLISH_SECONDS)
        async with translate_delivery_errors(broker.host, remaining, "the message", MqttError):
            address, *_ = await resolve_outgoing_addresses(
                broker.host, broker.port, self._allowed_networks
            )
            async with self._build_client(broker, address["host"], remaining) as client:
                await client.publish(
                    publication.topic,
                    publication.payload,
                    qos=publication.qos,
                    retain=publication.retain,
                    timeout=remaining,
                )

    def _build_client(self, broker: MqttBroker, address: str, seconds: float) -> Client:
        return Client(
            address,
            broker.port,
            username=broker.username or None,
            password=broker.password or None,
            identifier=broker.client_id or None,
            tls_context=self._build_tls_context(broker.host) if broker.tls else None,
            timeout=seconds,
        )

    def _build_tls_context(self, name: str) -> ssl.SSLContext:
        context = _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
        context.name = name
        if self._authorities is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(self._authorities)
        return context
