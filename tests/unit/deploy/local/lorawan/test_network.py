"""A simulated network without a broker: integrations can read its messages."""

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from deploy.local.lorawan.command import SimulatedNetwork
from deploy.local.lorawan.sensors import QueuedDownlink, Sensor, Uplink, build_dev_eui
from deploy.local.lorawan.servers import (
    ChirpStack,
    PublishedMessage,
    ServerFormat,
    TheThingsStack,
)
from libs.common.contracts.frames import DeviceFrame, Downlink, SendDownlinkState, SendLinkState
from services.management.networks import the_things_stack
from services.management.networks.chirpstack_events import decode_event, encode_command
from services.management.networks.messages import DownlinkRoute, OutboundDownlink

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
UPLINKS = [Uplink(85, b"\x01"), Uplink(85, b"\x02")]
SERVERS = [ChirpStack("app"), TheThingsStack("app@ttn")]
ITEM = "cc5ef9e2-8f1a-4f5e-9c2a-0f7b0d7c5a3e"


def make_network(server: ServerFormat, loss: float = 0.0) -> tuple[SimulatedNetwork, Sensor]:
    sensor = Sensor(build_dev_eui("x", "TH1", 1), "TH1", UPLINKS, Random(1))
    return SimulatedNetwork(server, [sensor], 1.0, loss), sensor


def read_reports(server: ServerFormat, messages: list[PublishedMessage]) -> list[Any]:
    """Return the reports that the integration reads from messages."""
    if isinstance(server, ChirpStack):
        events = [decode_event("t", each.topic, each.payload) for each in messages]
    else:
        events = [the_things_stack.decode_application_up("t", each.payload) for each in messages]
    return [event.report for event in events if event is not None]


def queued(server: ServerFormat, eui: str) -> list[QueuedDownlink]:
    """Return a downlink that the integration published and the server decoded."""
    route = DownlinkRoute(application="app", device=f"eui-{eui.lower()}")
    downlink = Downlink(id="1-1", port=7, data=b"\xff", confirmed=True)
    carried = OutboundDownlink(eui, route, downlink, ITEM)
    if isinstance(server, ChirpStack):
        topic, payload = encode_command(carried)
    else:
        topic, payload = the_things_stack.encode_push(carried, "app@ttn")
    assert server.parse_dev_eui(topic) == eui
    return server.decode_downlinks(payload)


@pytest.mark.parametrize("server", SERVERS)
def test_a_sensor_joins_before_its_first_uplink(server: ServerFormat) -> None:
    """The frame counter increases with each uplink."""
    network, sensor = make_network(server)
    joined, first, second = read_reports(
        server,
        [*network.build_uplink_messages(sensor, AT), *network.build_uplink_messages(sensor, AT)],
    )
    assert isinstance(joined, SendLinkState)
    assert isinstance(first, DeviceFrame)
    assert (joined.kind, joined.identifier, first.identifier) == ("JOINED", sensor.eui, sensor.eui)
    assert [each.frame.counter for each in (first, second)] == [1, 2]
    assert [each.frame.data for each in (first, second)] == [b"\x02", b"\x01"]
    assert first.frame.session == second.frame.session != ""
    assert first.frame.gateways
    assert first.frame.ts == int(AT.timestamp() * 1000)
    assert first.frame.data_rate.endswith("BW125")


@pytest.mark.parametrize("server", SERVERS)
def test_a_downlink_is_sent_after_an_uplink_and_acknowledged_by_the_next(
    server: ServerFormat,
) -> None:
    """A class A sensor listens only after an uplink."""
    network, sensor = make_network(server)
    network.build_uplink_messages(sensor, AT)
    sensor.queue += queued(server, sensor.eui)
    assert sensor.queue[0].uplink == Uplink(7, b"\xff")
    _, sent = read_reports(server, network.build_uplink_messages(sensor, AT))
    acknowledged, _ = read_reports(server, network.build_uplink_messages(sensor, AT))
    assert isinstance(sent, SendDownlinkState)
    assert isinstance(acknowledged, SendDownlinkState)
    assert (sent.downlink, sent.state) == (ITEM, "SENT")
    assert (acknowledged.downlink, acknowledged.state) == (ITEM, "ACKNOWLEDGED")


@pytest.mark.parametrize("server", SERVERS)
def test_lost_uplinks_are_counted(server: ServerFormat) -> None:
    """The frame counter increases with lost uplinks as well."""
    network, sensor = make_network(server, loss=0.5)
    messages = [each for _ in range(200) for each in network.build_uplink_messages(sensor, AT)]
    counters = [
        report.frame.counter
        for report in read_reports(server, messages)
        if isinstance(report, DeviceFrame)
    ]
    counts = network.counts
    assert counts.uplinks + counts.lost == 200
    assert len(counters) == counts.uplinks + counts.duplicates
    assert max(counters) > 1.5 * counts.uplinks / counts.joins


def test_device_euis_are_stable() -> None:
    """Another run uses the same sensors; products do not share them."""
    assert build_dev_eui("tts", "TH1", 1) == build_dev_eui("tts", "TH1", 1)
    others = {("tts", "TH1", 2), ("tts", "TH2", 1), ("chirpstack", "TH1", 1)}
    assert len({build_dev_eui(*key) for key in {("tts", "TH1", 1)} | others}) == 4
