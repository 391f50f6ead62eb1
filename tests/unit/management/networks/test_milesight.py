"""Messages of the network server in Milesight gateways."""

import msgspec
import pytest

from libs.common.contracts.frames import DeviceFrame, Downlink, Frame, Reception, SendDownlinkState
from libs.common.errors import InvalidInput
from services.management.networks.messages import DownlinkRoute, OutboundDownlink
from services.management.networks.milesight import decode_gateway_message, encode_downlink
from tests.unit.management.networks.samples import ITEM, MILESIGHT_UP

EUI = "24E124136B502217"
MS = 1672125687078


def changed(**fields: object) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(MILESIGHT_UP) | fields)


def test_an_uplink_is_a_frame() -> None:
    """It says no session: the time at which the gateway heard it stands for one."""
    assert decode_gateway_message("t", MILESIGHT_UP).report == DeviceFrame(
        tenant="t",
        identifier=EUI,
        frame=Frame(
            port=85,
            data=bytes.fromhex("0367ea0004684f050000"),
            counter=128,
            session=str(MS),
            ts=MS,
            data_rate="SF7BW125",
            frequency=868100000,
            gateways=[Reception(gateway="24e124fffef54092", rssi=-51, snr=13.8)],
        ),
    )


def test_a_repeated_uplink_is_recognized_and_a_restarted_counter_is_new() -> None:
    """A sensor that joins twice a day loses no uplink."""
    first, again = (decode_gateway_message("t", MILESIGHT_UP).report.frame for _ in range(2))
    later = decode_gateway_message("t", changed(time="2022-12-27T09:21:27Z")).report.frame
    assert (first.session, first.counter) == (again.session, again.counter)
    assert (later.session, later.counter) != (first.session, first.counter)
    assert (
        decode_gateway_message("t", changed(devAddr="07812782")).report.frame.session == "07812782"
    )


def test_radio_that_cannot_be_read_costs_no_uplink() -> None:
    """A wrong field is left out, and numbers may be text."""
    given = msgspec.json.decode(MILESIGHT_UP)
    given["rxInfo"] = [given["rxInfo"][0] | {"rssi": "none", "loRaSNR": "13.8"}, {"mac": 7}]
    given["txInfo"] |= {"frequency": 868.1}
    frame = decode_gateway_message("t", msgspec.json.encode(given)).report.frame
    assert [(gateway.rssi, gateway.snr) for gateway in frame.gateways] == [
        (None, 13.8),
        (None, None),
    ]
    assert (frame.frequency, frame.data_rate, frame.counter) == (None, "SF7BW125", 128)


@pytest.mark.parametrize("time", ["soon", "", 1e300, {}])
def test_a_time_that_cannot_be_read_costs_no_uplink(time: object) -> None:
    """It counts as none."""
    frame = decode_gateway_message("t", changed(time=time)).report.frame
    assert (frame.ts, frame.counter) == (None, 128)


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"acknowledged": True}, "ACKNOWLEDGED"),
        ({"acknowledged": False}, "UNACKNOWLEDGED"),
        ({"error": "downlink error,device offline"}, "REFUSED"),
    ],
)
def test_the_state_of_a_downlink_applies_to_the_oldest(
    fields: dict[str, object], state: str
) -> None:
    """Milesight's messages do not name the downlink."""
    told = decode_gateway_message(
        "t", msgspec.json.encode({"devEUI": EUI.lower(), **fields})
    ).report
    assert told == SendDownlinkState(
        tenant="t", identifier=EUI, downlink="", state=state, error=fields.get("error", "")
    )


def test_other_notes_are_passed_over() -> None:
    """As that a device is online."""
    assert (
        decode_gateway_message("t", msgspec.json.encode({"devEUI": EUI, "status": "online"}))
        is None
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [(b"{", "decoded"), (changed(devEUI="1"), "DevEUI"), (changed(fCnt=-1), "counter")],
)
def test_nonsense_is_refused(body: bytes, field: str) -> None:
    """With its place."""
    with pytest.raises(InvalidInput, match=field):
        decode_gateway_message("t", body)


def test_a_downlink_goes_to_the_topic_of_its_device() -> None:
    """As the gateway takes it."""
    downlink = Downlink(id="1-1", port=85, data=b"\xff", confirmed=True)
    topic, payload = encode_downlink(
        OutboundDownlink(EUI, DownlinkRoute(), downlink, ITEM), "gw/$deveui/down"
    )
    assert topic == "gw/24e124136b502217/down"
    assert msgspec.json.decode(payload) == {"confirmed": True, "fPort": 85, "data": "/w=="}
