"""Messages of The Things Stack 3."""

import msgspec
import pytest

from libs.common.contracts.frames import DeviceFrame, Downlink, Frame, Reception, SendDownlinkState
from libs.common.errors import InvalidInput
from services.management.networks.messages import DownlinkRoute, OutboundDownlink
from services.management.networks.the_things_stack import decode_application_up, encode_push
from tests.unit.management.networks import samples
from tests.unit.management.networks.samples import ITEM

EUI = "0004A30B001C0530"
OURS = ["as:downlink:01E", f"thingway:{ITEM}"]


def test_an_uplink_is_a_frame():
    """At the time at which the network had it, in the session of its key."""
    heard = decode_application_up("t", samples.TTS_UP)
    assert heard.route == DownlinkRoute(application="app1", device="dev1")
    assert heard.report == DeviceFrame(
        tenant="t",
        identifier=EUI,
        frame=Frame(
            port=15,
            data=b"b|",
            counter=4,
            session="AXA50tHUHnbPeR1Sm4h5rA==",
            ts=1581520545123,
            data_rate="SF7BW125",
            frequency=868300000,
            gateways=[Reception(gateway="9C5C8E00001A05C4", rssi=-35, snr=5.2)],
        ),
    )


def test_a_time_that_cannot_be_read_costs_no_uplink():
    """The other one counts, or none."""
    up = msgspec.json.decode(samples.TTS_UP)
    up["uplink_message"]["received_at"] = "soon"
    up["received_at"] = "2020-02-12T15:15:45"
    assert decode_application_up("t", msgspec.json.encode(up)).report.frame.ts == 1581520545000
    up["received_at"] = {}
    assert decode_application_up("t", msgspec.json.encode(up)).report.frame.ts is None


def test_radio_that_cannot_be_read_costs_no_uplink():
    """A wrong field is left out."""
    up = msgspec.json.decode(samples.TTS_UP)
    up["uplink_message"]["rx_metadata"][0]["snr"] = {}
    up["uplink_message"]["settings"]["data_rate"]["lora"] = []
    frame = decode_application_up("t", msgspec.json.encode(up)).report.frame
    assert [(gateway.rssi, gateway.snr) for gateway in frame.gateways] == [(-35, None)]
    assert (frame.data_rate, frame.port) == ("", 15)


def test_a_join_becomes_a_link_state():
    """As an event of the link."""
    told = decode_application_up("t", samples.tts(join_accept={"session_key_id": "AXBS"})).report
    assert (told.kind, told.identifier) == ("JOINED", EUI)


@pytest.mark.parametrize(
    ("fields", "state", "error"),
    [
        ({"downlink_sent": {"correlation_ids": OURS}}, "SENT", ""),
        ({"downlink_ack": {"correlation_ids": OURS}}, "ACKNOWLEDGED", ""),
        ({"downlink_nack": {}, "correlation_ids": OURS}, "UNACKNOWLEDGED", ""),
        (
            {
                "downlink_failed": {
                    "downlink": {"correlation_ids": OURS},
                    "error": {
                        "namespace": "pkg/networkserver",
                        "name": "application_downlink_too_long",
                        "message_format": "application downlink payload is too long",
                    },
                }
            },
            "REFUSED",
            (
                "pkg/networkserver:application_downlink_too_long: "
                "application downlink payload is too long"
            ),
        ),
    ],
)
def test_the_state_of_a_downlink_is_reported_by_its_correlation_id(fields, state, error):
    """The server may put the id at several places."""
    told = decode_application_up("t", samples.tts(**fields)).report
    assert told == SendDownlinkState(
        tenant="t", identifier=EUI, downlink=ITEM, state=state, ts=1581520545787, error=error
    )


def test_other_messages_are_ignored():
    """These are downlinks of others, and messages without a meaning here."""
    assert (
        decode_application_up(
            "t", samples.tts(downlink_sent={"correlation_ids": ["as:downlink:1"]})
        )
        is None
    )
    assert decode_application_up("t", samples.tts(downlink_queued={"f_port": 1})) is None


def test_a_device_without_a_dev_eui_is_refused():
    """The platform would not know which one it is."""
    message = msgspec.json.decode(samples.TTS_UP)
    del message["end_device_ids"]["dev_eui"]
    with pytest.raises(InvalidInput) as refused:
        decode_application_up("t", msgspec.json.encode(message))
    assert refused.value.field == "end_device_ids.dev_eui"


def test_a_downlink_is_pushed_to_the_end_of_the_queue():
    """With a correlation id of ours."""
    downlink = Downlink(id="7", port=85, data=b"\x01", confirmed=False)
    carried = OutboundDownlink(
        EUI, DownlinkRoute(application="app1", device="dev1"), downlink, ITEM
    )
    topic, payload = encode_push(carried, "app1@ttn")
    assert topic == "v3/app1@ttn/devices/dev1/down/push"
    assert msgspec.json.decode(payload)["downlinks"] == [
        {
            "f_port": 85,
            "frm_payload": "AQ==",
            "confirmed": False,
            "priority": "NORMAL",
            "correlation_ids": [f"thingway:{ITEM}"],
        }
    ]
