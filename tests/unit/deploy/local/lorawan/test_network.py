"""A simulated network without its broker: what it says is what the integrations read."""

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from deploy.local.lorawan.command import Network
from deploy.local.lorawan.sensors import Queued, Sensor, Uplink, dev_eui
from deploy.local.lorawan.servers import ChirpStack, NetworkServer, Published, TheThingsStack
from libs.common.contracts.frames import Downlink, TellDownlink, TellLink, ToldFrame
from services.management.networks import the_things_stack
from services.management.networks.chirpstack_events import encode_command, read_event
from services.management.networks.messages import OutboundDownlink, Route

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
UPLINKS = [Uplink(85, b"\x01"), Uplink(85, b"\x02")]
SERVERS = [ChirpStack("app"), TheThingsStack("app@ttn")]
ITEM = "cc5ef9e2-8f1a-4f5e-9c2a-0f7b0d7c5a3e"


def network(server: NetworkServer, loss: float = 0.0) -> tuple[Network, Sensor]:
    sensor = Sensor(dev_eui("x", "TH1", 1), "TH1", UPLINKS, Random(1))
    return Network(server, [sensor], 1.0, loss), sensor


def told(server: NetworkServer, said: list[Published]) -> list[Any]:
    """What the integration tells of messages."""
    if isinstance(server, ChirpStack):
        heard = [read_event("t", one.topic, one.payload) for one in said]
    else:
        heard = [the_things_stack.read_message("t", one.payload) for one in said]
    return [one.report for one in heard if one is not None]


def queued(server: NetworkServer, eui: str) -> list[Queued]:
    """A downlink as the integration publishes it, and the server takes it."""
    route = Route(application="app", device=f"eui-{eui.lower()}")
    downlink = Downlink(id="1-1", port=7, data=b"\xff", confirmed=True)
    carried = OutboundDownlink(eui, route, downlink, ITEM)
    if isinstance(server, ChirpStack):
        topic, payload = encode_command(carried)
    else:
        topic, payload = the_things_stack.encode_push(carried, "app@ttn")
    assert server.device(topic) == eui
    return server.read(payload)


@pytest.mark.parametrize("server", SERVERS)
def test_a_sensor_joins_and_counts(server: NetworkServer) -> None:
    """Its first uplink comes after a join, and each one has the next counter."""
    made, sensor = network(server)
    joined, first, second = told(server, [*made.uplink(sensor, AT), *made.uplink(sensor, AT)])
    assert isinstance(joined, TellLink)
    assert isinstance(first, ToldFrame)
    assert (joined.kind, joined.identifier, first.identifier) == ("JOINED", sensor.eui, sensor.eui)
    assert [one.frame.counter for one in (first, second)] == [1, 2]
    assert [one.frame.data for one in (first, second)] == [b"\x02", b"\x01"]
    assert first.frame.session == second.frame.session != ""
    assert first.frame.gateways
    assert first.frame.ts == int(AT.timestamp() * 1000)
    assert first.frame.data_rate.endswith("BW125")


@pytest.mark.parametrize("server", SERVERS)
def test_a_downlink_is_sent_after_an_uplink_and_acknowledged_by_the_next(
    server: NetworkServer,
) -> None:
    """A sensor of class A listens only then."""
    made, sensor = network(server)
    made.uplink(sensor, AT)
    sensor.queue += queued(server, sensor.eui)
    assert sensor.queue[0].uplink == Uplink(7, b"\xff")
    _, sent = told(server, made.uplink(sensor, AT))
    acknowledged, _ = told(server, made.uplink(sensor, AT))
    assert isinstance(sent, TellDownlink)
    assert isinstance(acknowledged, TellDownlink)
    assert (sent.downlink, sent.state) == (ITEM, "SENT")
    assert (acknowledged.downlink, acknowledged.state) == (ITEM, "ACKNOWLEDGED")


@pytest.mark.parametrize("server", SERVERS)
def test_what_is_lost_is_counted_and_shows_in_the_counter(server: NetworkServer) -> None:
    """Uplinks that nobody hears have a counter all the same."""
    made, sensor = network(server, loss=0.5)
    said = [one for _ in range(200) for one in made.uplink(sensor, AT)]
    counters = [one.frame.counter for one in told(server, said) if isinstance(one, ToldFrame)]
    counts = made.counts
    assert counts.uplinks + counts.lost == 200
    assert len(counters) == counts.uplinks + counts.twice
    assert max(counters) > 1.5 * counts.uplinks / counts.joins


def test_names_are_always_the_same() -> None:
    """Another run goes on with the sensors that there are; products do not share them."""
    assert dev_eui("tts", "TH1", 1) == dev_eui("tts", "TH1", 1)
    others = {("tts", "TH1", 2), ("tts", "TH2", 1), ("chirpstack", "TH1", 1)}
    assert len({dev_eui(*one) for one in {("tts", "TH1", 1)} | others}) == 4
