"""Bodies of any webhook, read by pointers."""

from typing import Any

import msgspec
import pytest

from libs.common.contracts.frames import Frame, Reception
from libs.common.errors import InvalidInput
from services.management.networks.webhook_mapping import check_pointers, map_body_to_uplink

BODY = {
    "dev": {"eui": "24-E1-24-13-6B-50-22-17", "a/b": "S1"},
    "up": [{"data": "D7FF", "port": "85", "rssi": -90, "snr": "7.5", "gw": "g1", "dr": "SF7BW125"}],
    "n": 17,
    "at": "2026-01-01T00:00:00Z",
    "hz": 868100000,
}
MAPPING = {
    "device": "/dev/eui",
    "data": "/up/0/data",
    "encoding": "hex",
    "port": "/up/0/port",
    "time": "/at",
    "counter": "/n",
    "session": "/dev/a~1b",
    "rssi": "/up/0/rssi",
    "snr": "/up/0/snr",
    "gateway": "/up/0/gw",
    "data_rate": "/up/0/dr",
    "frequency": "/hz",
}
MS = 1767225600000


def heard(body: Any, **settings: str) -> Frame:
    told = map_body_to_uplink("t", msgspec.json.encode(body), MAPPING | settings)
    assert told is not None
    assert told.report.identifier == "24E124136B502217"
    return told.report.frame


def test_an_uplink_is_a_frame() -> None:
    """With all that is pointed at."""
    assert heard(BODY) == Frame(
        port=85,
        data=b"\xd7\xff",
        counter=17,
        session="S1",
        ts=MS,
        data_rate="SF7BW125",
        frequency=868100000,
        gateways=[Reception(gateway="g1", rssi=-90, snr=7.5)],
    )


def test_optional_pointers_may_be_missing() -> None:
    """The port may be a number, and the default encoding is Base64."""
    body = {"id": BODY["dev"]["eui"], "b": "1/8="}
    settings = {"device": "/id", "data": "/b", "port": "10"}
    told = map_body_to_uplink("t", msgspec.json.encode(body), settings)
    assert told is not None
    assert (told.report.frame.port, told.report.frame.data) == (10, b"\xd7\xff")
    assert told.report.frame.gateways == []


@pytest.mark.parametrize(
    "at", [MS, MS // 1000, float(MS), f"{MS // 1000}", f"{MS}.0", "2026-01-01T01:00:00+01:00"]
)
def test_times_are_text_or_numbers(at: Any) -> None:
    """ISO 8601, seconds or milliseconds."""
    assert heard(BODY | {"at": at}).ts == MS


def test_identity_is_session_and_counter_else_the_time_else_none_is_shared() -> None:
    """A delivery that comes again is known; without anything to know it by it is another one."""
    assert (heard(BODY, session="").session, heard(BODY, session="").counter) == (str(MS), 17)
    assert (heard(BODY, counter="").session, heard(BODY, counter="").counter) == (str(MS), 0)
    restarted = [heard(BODY, session="", time="") for _ in range(2)]
    assert [uplink.counter for uplink in restarted] == [17, 17]
    assert restarted[0].session != restarted[1].session
    bare = [heard(BODY, counter="", session="", time="").session for _ in range(2)]
    assert bare[0] != bare[1]


def test_a_clock_that_was_never_set_names_no_uplink() -> None:
    """Each uplink of such a gateway has the same time."""
    first, second = [heard(BODY | {"at": "0"}, counter="", session="") for _ in range(2)]
    assert first.ts == second.ts == 0
    assert first.session != second.session


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"dev": {}}, "/dev/eui"),
        ({"dev": {"eui": "12"}}, "/dev/eui"),
        ({"up": [{"port": 1}]}, "/up/0/data"),
        ({"up": [{"data": "xx", "port": 1}]}, "/up/0/data"),
        ({"up": [{"data": 7, "port": 1}]}, "/up/0/data"),
        ({"up": [{"data": "00" * 256, "port": 1}]}, "data"),
    ],
)
def test_the_error_of_an_invalid_value_names_the_pointer(
    change: dict[str, Any], field: str
) -> None:
    """Without a pointer, it names the field."""
    with pytest.raises(InvalidInput) as raised:
        heard(BODY | change)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"up": [{**BODY["up"][0], "port": True}]}, {"port": 1}),
        ({"up": [{**BODY["up"][0], "port": "two"}]}, {"port": 1}),
        (
            {"up": [{**BODY["up"][0], "rssi": []}]},
            {"gateways": [Reception(gateway="g1", rssi=None, snr=7.5)]},
        ),
        (
            {"up": [{**BODY["up"][0], "snr": "7,5", "gw": {}}]},
            {"gateways": [Reception(gateway="", rssi=-90)]},
        ),
        ({"n": -1}, {"counter": 0, "session": str(MS)}),
        ({"n": "many"}, {"counter": 0, "session": str(MS)}),
        ({"n": 1e300}, {"counter": 0, "session": str(MS)}),
        ({"dev": {**BODY["dev"], "a/b": []}}, {"session": str(MS)}),
        ({"at": "yesterday"}, {"ts": None}),
        ({"at": 1e300}, {"ts": None}),
        ({"at": []}, {"ts": None}),
        ({"hz": {}}, {"frequency": None}),
        ({"up": [{**BODY["up"][0], "dr": {}}]}, {"data_rate": ""}),
    ],
)
def test_an_optional_field_that_cannot_be_read_costs_no_uplink(
    change: dict[str, Any], left: dict[str, Any]
) -> None:
    """It is left out, and `last_error` names it."""
    told = map_body_to_uplink("t", msgspec.json.encode(BODY | change), MAPPING)
    assert told is not None
    assert told.unreadable.startswith("/")
    expected = msgspec.structs.replace(heard(BODY), **left)
    assert told.report.frame == expected


def test_a_body_without_a_port_is_passed_over() -> None:
    """A join has none, and need not have the other fields."""
    assert map_body_to_uplink("t", b'{"joined": true}', MAPPING) is None
    assert (
        map_body_to_uplink("t", msgspec.json.encode(BODY | {"up": [{"port": None}]}), MAPPING)
        is None
    )


def test_numbers_may_be_text() -> None:
    """Port, counter, radio and frequency; MHz and kHz become Hz."""
    up = BODY["up"][0] | {"port": "85.0", "rssi": "-90.00", "dr": "SF7 BW125 4/5"}
    assert heard(BODY | {"up": [up], "n": "17", "hz": "868.1"}) == heard(BODY)
    assert heard(BODY | {"hz": 868100}) == heard(BODY)


HELIUM = {
    "app_eui": "0011223344556677",
    "dev_eui": "24E124136B502217",
    "devaddr": "48000A01",
    "fcnt": 17,
    "hotspots": [
        {
            "frequency": 868.1,
            "id": "11abc",
            "name": "quiet-green-otter",
            "reported_at": MS,
            "rssi": -90,
            "snr": 7.5,
            "spreading": "SF7BW125",
            "status": "success",
        }
    ],
    "payload": "1/8=",
    "port": 85,
    "reported_at": MS,
}
CHIRPSTACK = {
    "time": "2026-01-01T00:00:00.000+00:00",
    "deviceInfo": {"devEui": "24e124136b502217"},
    "devAddr": "48000A01",
    "fCnt": 17,
    "fPort": 85,
    "data": "1/8=",
    "rxInfo": [{"gatewayId": "g1", "rssi": -90, "snr": 7.5}],
    "txInfo": {"frequency": 868100000, "modulation": {"lora": {"spreadingFactor": 7}}},
}
LORIOT = {
    "cmd": "rx",
    "seqno": 4,
    "EUI": "24E124136B502217",
    "ts": MS,
    "fcnt": 17,
    "port": 85,
    "freq": 868100000,
    "rssi": -90,
    "snr": 7.5,
    "dr": "SF7 BW125 4/5",
    "ack": False,
    "data": "d7ff",
}
LORIOT_GATEWAYS = {k: v for k, v in LORIOT.items() if k not in {"rssi", "snr"}} | {
    "cmd": "gw",
    "gws": [{"rssi": -90, "snr": 7.5, "ts": MS, "gweui": "g1"}],
}
ACTILITY = {
    "DevEUI_uplink": {
        "Time": "2026-01-01T01:00:00.000+01:00",
        "DevEUI": "24E124136B502217",
        "FPort": "85",
        "FCntUp": "17",
        "payload_hex": "d7ff",
        "LrrRSSI": "-90.000000",
        "LrrSNR": "7.500000",
        "SpFact": "7",
        "Lrrid": "g1",
        "DevAddr": "48000A01",
        "Frequency": 868.1,
    }
}
SIGFOX = {
    "device": "1A2345",
    "time": str(MS // 1000),
    "data": "d7ff",
    "seqNumber": "17",
    "rssi": "-90.00",
    "snr": "7.50",
    "station": "g1",
}


@pytest.mark.parametrize(
    ("preset", "body", "more"),
    [
        ("helium", HELIUM, {"session": "48000A01", "gateway": "quiet-green-otter"}),
        ("helium", CHIRPSTACK, {"session": "48000A01", "data_rate": "SF7"}),
        ("loriot", LORIOT, {"session": str(MS), "gateway": ""}),
        ("loriot", LORIOT_GATEWAYS, {"session": str(MS)}),
        ("actility", ACTILITY, {"session": "48000A01", "data_rate": "SF7"}),
        (
            "sigfox",
            SIGFOX,
            {"session": str(MS), "port": 1, "data_rate": "", "frequency": None},
        ),
    ],
)
def test_a_preset_reads_the_messages_of_its_server(
    preset: str, body: dict[str, Any], more: dict[str, Any]
) -> None:
    """It needs no pointers, and ignores those that were set before."""
    told = map_body_to_uplink(
        "t", msgspec.json.encode(body), {"preset": preset, "device": "/other"}
    )
    assert told is not None
    gateway = Reception(gateway=more.pop("gateway", "g1"), rssi=-90, snr=7.5)
    frame = Frame(
        port=85,
        data=b"\xd7\xff",
        counter=17,
        ts=MS,
        data_rate="SF7BW125",
        frequency=868100000,
        gateways=[gateway],
    )
    assert told.report.frame == msgspec.structs.replace(frame, **more)
    assert told.unreadable == ""
    eui = "00000000001A2345" if preset == "sigfox" else "24E124136B502217"
    assert told.report.identifier == eui


@pytest.mark.parametrize(
    ("preset", "body", "key"),
    [
        ("helium", CHIRPSTACK, "data"),
        ("sigfox", SIGFOX, "data"),
        ("actility", ACTILITY["DevEUI_uplink"], "payload_hex"),
    ],
)
def test_an_uplink_without_bytes_has_no_data(preset: str, body: dict[str, Any], key: str) -> None:
    """These servers leave the field out."""
    left = {name: value for name, value in body.items() if name != key}
    given = {"DevEUI_uplink": left} if preset == "actility" else left
    told = map_body_to_uplink("t", msgspec.json.encode(given), {"preset": preset})
    assert told is not None
    assert told.report.frame.data == b""


def test_a_figure_that_a_server_does_not_have_is_no_fault() -> None:
    """Sigfox writes `null` as text for radio figures outside of the contract."""
    body = SIGFOX | {"rssi": "null", "snr": ""}
    told = map_body_to_uplink("t", msgspec.json.encode(body), {"preset": "sigfox"})
    assert told is not None
    assert (told.report.frame.gateways, told.unreadable) == ([Reception(gateway="g1")], "")


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        *[("hex", text) for text in ("0xd7ff", " d7 ff ", "D7:FF", "d7-ff")],
        *[("base64", text) for text in ("1/8=", "1/8", "1_8", "1/8=\r\n")],
    ],
)
def test_bytes_are_read_as_servers_write_them(encoding: str, data: str) -> None:
    """With separators, without padding, or in the alphabet of URLs."""
    body = BODY | {"up": [BODY["up"][0] | {"data": data}]}
    assert heard(body, encoding=encoding).data == b"\xd7\xff"


@pytest.mark.parametrize(
    ("preset", "body"),
    [
        ("helium", {"type": "join", "dev_eui": "24E124136B502217"}),
        ("loriot", LORIOT | {"cmd": "tx", "error": ""}),
        ("loriot", {k: v for k, v in LORIOT.items() if k != "data"} | {"port": 0}),
        ("loriot", {"cmd": "txd", "EUI": "24E124136B502217", "seqdn": 1}),
        ("actility", {"DevEUI_downlink_Sent": {"DevEUI": "24E124136B502217"}}),
        ("actility", {"DevEUI_uplink": {"DevEUI": "24E124136B502217", "FCntUp": 9}}),
    ],
)
def test_a_preset_ignores_other_messages(preset: str, body: dict[str, Any]) -> None:
    """They have no port of an application, or another type."""
    assert map_body_to_uplink("t", msgspec.json.encode(body), {"preset": preset}) is None


def test_own_pointers_count_again_after_a_preset() -> None:
    """`custom` is a choice like the others."""
    assert heard(BODY, preset="custom") == heard(BODY)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_body_may_have_a_byte_order_mark(encoding: str) -> None:
    """Some frameworks write one."""
    told = map_body_to_uplink("t", msgspec.json.encode(BODY).decode().encode(encoding), MAPPING)
    assert told is not None
    assert told.report.frame == heard(BODY)


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 5000])
def test_invalid_json_is_rejected(body: bytes) -> None:
    """This includes deeply nested JSON."""
    with pytest.raises(InvalidInput) as raised:
        map_body_to_uplink("t", body, MAPPING)
    assert raised.value.field == "body"


def test_the_networks_own_is_passed_over() -> None:
    """Ports that no application has."""
    assert map_body_to_uplink("t", msgspec.json.encode(BODY), MAPPING | {"port": "224"}) is None


@pytest.mark.parametrize("key", ["device", "data", "port"])
def test_settings_that_are_missing_are_named(key: str) -> None:
    """Nothing is read without them."""
    with pytest.raises(InvalidInput) as raised:
        heard(BODY, **{key: ""})
    assert raised.value.field == key


@pytest.mark.parametrize(("key", "text"), [("device", "dev"), ("port", "8x"), ("time", "12")])
def test_settings_are_pointers(key: str, text: str) -> None:
    """And the port may be a number."""
    check_pointers({"port": "85", "device": "/a", "time": ""})
    with pytest.raises(InvalidInput) as raised:
        check_pointers({key: text})
    assert raised.value.field == key
