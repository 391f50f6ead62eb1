"""Events of ChirpStack 4, in JSON and protobuf."""

import msgspec
import pytest
from chirpstack_api.integration import integration_pb2 as pb

from libs.common.contracts.frames import (
    DeviceFrame,
    Downlink,
    Frame,
    Reception,
    SendDownlinkState,
    SendLinkState,
)
from libs.common.errors import InvalidInput
from services.management.networks.chirpstack_events import decode_event, encode_command
from services.management.networks.messages import DownlinkRoute, OutboundDownlink
from tests.unit.management.networks import samples
from tests.unit.management.networks.samples import APPLICATION, EUI, ITEM

AT = 1658136855775


def event(kind: str, payload: bytes):
    return decode_event("t", f"application/{APPLICATION}/device/{EUI}/event/{kind}", payload)


@pytest.mark.parametrize("payload", [samples.CHIRPSTACK_UP, samples.chirpstack_up()])
def test_an_uplink_is_a_frame(payload):
    """The same of both encodings: session, counter, radio, the strongest gateway first."""
    heard = event("up", payload)
    assert heard.route == DownlinkRoute(application=APPLICATION, protobuf=payload[:1] != b"{")
    assert heard.report == DeviceFrame(
        tenant="t",
        identifier=EUI,
        frame=Frame(
            port=1,
            data=b"\xaa",
            counter=4,
            session="00189440",
            ts=AT,
            confirmed=True,
            data_rate="SF11BW125",
            frequency=867100000,
            gateways=[
                Reception(
                    gateway="0016c001f153a14d", rssi=-30, snr=0.0 if payload[:1] != b"{" else None
                ),
                Reception(gateway="0016c001f153a14c", rssi=-36, snr=10.5),
            ],
        ),
    )


def test_an_uplink_with_an_unreadable_time_is_accepted():
    """This holds for both encodings."""
    assert event("up", samples.chirpstack(fPort=1, fCnt=3, time="soon")).report.frame.ts is None
    beyond = pb.UplinkEvent.FromString(samples.chirpstack_up())
    beyond.time.seconds = 2**62
    assert event("up", beyond.SerializeToString()).report.frame.ts is None


def test_network_messages_are_no_frames():
    """These are uplinks without a port or with a port that no application has."""
    for port in (None, 0, 224):
        assert event("up", samples.chirpstack(fPort=port, fCnt=3)) is None
    assert decode_event("t", "application/1/device/2/event/location", b"{}") is None


def test_a_join_and_a_status_become_link_states():
    """A status has the margin, and the battery in percent if it is known."""
    join = SendLinkState(tenant="t", identifier=EUI, kind="JOINED", ts=AT)
    assert event("join", samples.chirpstack(devAddr="00189440")).report == join
    status = pb.StatusEvent(device_info=samples.device_info(), margin=7, battery_level=75.5)
    assert event("status", status.SerializeToString()).report == SendLinkState(
        tenant="t", identifier=EUI, kind="STATUS", battery=75.5, margin=7
    )
    powered = samples.chirpstack(margin=-3, externalPowerSource=True)
    told = event("status", powered).report
    assert (told.battery, told.external_power, told.margin) == (None, True, -3)


@pytest.mark.parametrize(
    ("kind", "fields", "state", "error"),
    [
        ("txack", {"queueItemId": ITEM}, "SENT", ""),
        ("ack", {"queueItemId": ITEM, "acknowledged": True}, "ACKNOWLEDGED", ""),
        ("ack", {"queueItemId": ITEM}, "UNACKNOWLEDGED", ""),
        (
            "log",
            {
                "level": "ERROR",
                "code": "DOWNLINK_PAYLOAD_SIZE",
                "description": "exceeds the max. payload size",
                "context": {"queue_item_id": ITEM, "item_size": "90"},
            },
            "REFUSED",
            "DOWNLINK_PAYLOAD_SIZE: exceeds the max. payload size",
        ),
    ],
)
def test_the_state_of_a_downlink_is_reported_by_its_id(kind, fields, state, error):
    """It is sent, acknowledged, unacknowledged, or rejected with the server's text."""
    told = SendDownlinkState(
        tenant="t", identifier=EUI, downlink=ITEM, state=state, ts=AT, error=error
    )
    assert event(kind, samples.chirpstack(**fields)).report == told


def test_other_log_entries_are_the_servers_own():
    """An error of an uplink's codec, say."""
    assert event("log", samples.chirpstack(level="ERROR", code="UPLINK_CODEC")) is None


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        (b'{"deviceInfo": {"devEui": "01"}}', "deviceInfo.devEui"),
        (b"{", "cannot be decoded"),
        (b"\xff\xff", "must be a JSON object or protobuf"),
        (samples.chirpstack(fPort=1, data="a"), "$.data"),
        (samples.chirpstack(fPort=1, fCnt=-1), "counter"),
        (samples.chirpstack(fPort=1, data="QUFB" * 90), "data"),
    ],
)
def test_the_error_of_an_unreadable_message_names_the_field(payload, place):
    """Data that is no message at all is reported as such."""
    with pytest.raises(InvalidInput) as refused:
        event("up", payload)
    assert place in refused.value.text


def test_a_downlink_is_a_command_in_the_encoding_of_the_server():
    """With a UUID of ours, so that a copy is known there."""
    downlink = Downlink(id="7", port=85, data=b"\x01\x02", confirmed=True)
    topic, payload = encode_command(
        OutboundDownlink(EUI, DownlinkRoute(application=APPLICATION), downlink, ITEM)
    )
    assert topic == f"application/{APPLICATION}/device/{EUI}/command/down"
    assert msgspec.json.decode(payload) == {
        "id": ITEM,
        "devEui": EUI,
        "confirmed": True,
        "fPort": 85,
        "data": "AQI=",
    }
    route = DownlinkRoute(application=APPLICATION, protobuf=True)
    command = pb.DownlinkCommand.FromString(
        encode_command(OutboundDownlink(EUI, route, downlink, ITEM)).payload
    )
    assert (command.id, command.f_port, command.data) == (ITEM, 85, b"\x01\x02")
