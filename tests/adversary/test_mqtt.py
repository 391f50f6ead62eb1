"""Whatever a login sends over MQTT, the others lose nothing and it hears nothing of theirs."""

import aiomqtt
import pytest
from hypothesis import given

from tests.adversary.effort import MANY
from tests.adversary.logins import OVER_MQTT, assert_ignorant, fresh_logins
from tests.adversary.mqtt_made import sessions
from tests.adversary.mqtt_wire import Session, attacking, received
from tests.adversary.oracle import Oracle

pytestmark = pytest.mark.xdist_group("platform")

each_login = pytest.mark.parametrize("kind", OVER_MQTT)


async def attack(oracle: Oracle, kind: str, said: list[Session]) -> None:
    """Go through sessions; those that are left listen on while the others are served."""
    town = oracle.town
    port = town.mallory.platform.mqtt_port
    async with attacking(port, (await fresh_logins(town))[kind], town, said) as wires:
        await oracle.judge()
        assert_ignorant(await received(wires), kind, town)


@pytest.mark.slow
@each_login
@MANY
@given(said=sessions)
async def test_any_packet(oracle: Oracle, kind: str, said: list[Session]) -> None:
    """Any client id, will, topic and packet; sessions that stay, retained messages."""
    await attack(oracle, kind, said)


async def test_endless_subscriptions_end_their_connection(oracle: Oracle) -> None:
    """nats-server keeps each in memory."""
    device = await oracle.town.mallory.add_device()
    topics = [(f"thing/{device.sn}/down/{number}", 0) for number in range(101)]
    async with device.mqtt() as mqtt:
        await mqtt.client.subscribe(topics)
        with pytest.raises(aiomqtt.MqttError):
            await anext(mqtt.client.messages)
    await oracle.judge()
