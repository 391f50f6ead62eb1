"""Messages of flows, published at a real broker: the MQTT door of NATS, plain and with TLS."""

import asyncio
import socket
import ssl

import aiomqtt
import pytest
from msgspec.structs import replace

from services.workflow.errors import NodeFailed
from services.workflow.outgoing.mqtt import MqttBroker, OutgoingMqtt, Publication
from tests.integration.workflow.outgoing.certificates import Certificate
from tests.integration.workflow.outgoing.conftest import LOCAL, PASSWORD


@pytest.fixture
def mqtt(authority: Certificate) -> OutgoingMqtt:
    """Trusts the broker's certificate."""
    return OutgoingMqtt(LOCAL, str(authority.chain))


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_message_arrives(mqtt, broker, authority, qos):
    """A subscriber receives the message."""
    context = ssl.create_default_context(cafile=authority.chain) if broker.tls else None
    listener = aiomqtt.Client(
        "localhost", broker.port, username="flows", password=PASSWORD, tls_context=context
    )
    async with asyncio.timeout(30), listener:
        await listener.subscribe("flows/+")
        await mqtt.publish(broker, Publication(topic="flows/1", payload=b"31", qos=qos), 10)
        message = await anext(aiter(listener.messages))
    assert (str(message.topic), message.payload) == ("flows/1", b"31")


async def test_the_error_of_a_wrong_password_does_not_contain_it(mqtt, broker):
    """It contains the broker's text."""
    wrong = replace(broker, password="wrong password")
    with pytest.raises(NodeFailed) as failed:
        await mqtt.publish(wrong, Publication(topic="a", payload=b""), 10)
    assert "localhost did not accept the message" in str(failed.value)
    assert "wrong password" not in str(failed.value)


async def test_an_untrusted_certificate_ends_the_connection(broker):
    """So does one of another name: the name counts, not the address."""
    publication = Publication(topic="a", payload=b"")
    if not broker.tls:
        await OutgoingMqtt(LOCAL).publish(broker, publication, 10)
        return
    with pytest.raises(NodeFailed, match="certificate"):
        await OutgoingMqtt(LOCAL).publish(broker, publication, 10)


async def test_a_certificate_for_another_name_ends_it(mqtt, broker):
    """The certificate is for `localhost`."""
    other = replace(broker, host="127.0.0.1")
    if not broker.tls:
        await mqtt.publish(other, Publication(topic="a", payload=b""), 10)
        return
    with pytest.raises(NodeFailed, match="certificate"):
        await mqtt.publish(other, Publication(topic="a", payload=b""), 10)


async def test_addresses_that_are_not_public_are_refused(broker):
    """As for HTTP."""
    with pytest.raises(NodeFailed, match="localhost is not a public address"):
        await OutgoingMqtt(()).publish(broker, Publication(topic="a", payload=b""), 10)


async def test_a_port_without_a_server_is_a_reason(mqtt):
    """A server that never answers is one, too."""
    publication = Publication(topic="a", payload=b"")
    with pytest.raises(NodeFailed, match="did not accept the message"):
        await mqtt.publish(MqttBroker(host="127.0.0.1", port=1, tls=False), publication, 10)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(NodeFailed, match="did not"):
            await mqtt.publish(MqttBroker(host="127.0.0.1", port=port, tls=False), publication, 1)
