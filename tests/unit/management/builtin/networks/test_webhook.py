"""Bodies of any webhook, read by pointers."""

from typing import Any

import msgspec
import pytest

from libs.common.contracts.frames import Frame, Reception
from libs.common.errors import InvalidInput
from services.management.builtin.networks.webhook.mapping import check, read

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
    told = read("t", msgspec.json.encode(body), MAPPING | settings)
    assert told is not None
    assert told.told.identifier == "24E124136B502217"
    return told.told.frame


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


def test_what_is_not_set_is_not_needed() -> None:
    """Port may be a number, the encoding is base64."""
    body = {"id": BODY["dev"]["eui"], "b": "1/8="}
    settings = {"device": "/id", "data": "/b", "port": "10"}
    told = read("t", msgspec.json.encode(body), settings)
    assert told is not None
    assert (told.told.frame.port, told.told.frame.data) == (10, b"\xd7\xff")
    assert told.told.frame.gateways == []


@pytest.mark.parametrize("at", [MS, MS // 1000, float(MS), "2026-01-01T01:00:00+01:00"])
def test_times_are_text_or_numbers(at: Any) -> None:
    """ISO 8601, seconds or milliseconds."""
    assert heard(BODY | {"at": at}).ts == MS


def test_identity_is_session_and_counter_else_the_time_else_none_is_shared() -> None:
    """A delivery that comes again is known; without anything to know it by it is another one."""
    assert (heard(BODY, session="").session, heard(BODY, session="").counter) == (str(MS), 17)
    assert (heard(BODY, counter="").session, heard(BODY, counter="").counter) == (str(MS), 0)
    bare = [heard(BODY, counter="", session="", time="").session for _ in range(2)]
    assert bare[0] != bare[1]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"dev": {}}, "/dev/eui"),
        ({"dev": {"eui": "12"}}, "/dev/eui"),
        ({"up": []}, "/up/0/port"),
        ({"up": [{"data": "xx", "port": 1}]}, "/up/0/data"),
        ({"up": [{"data": 7, "port": 1}]}, "/up/0/data"),
        ({"up": [{"data": "00", "port": True}]}, "/up/0/port"),
        ({"up": [{"data": "00", "port": 1, "rssi": []}]}, "/up/0/rssi"),
        ({"up": [{"data": "00" * 256, "port": 1}]}, "data"),
        ({"n": -1}, "counter"),
        ({"n": "many"}, "/n"),
        ({"n": 1e300}, "counter"),
        ({"at": "yesterday"}, "/at"),
        ({"at": 1e300}, "/at"),
        ({"at": []}, "/at"),
        ({"hz": {}}, "/hz"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], field: str) -> None:
    """By its pointer, or by what it would be."""
    with pytest.raises(InvalidInput) as raised:
        heard(BODY | change)
    assert raised.value.field == field


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 5000])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    """However deep it goes."""
    with pytest.raises(InvalidInput) as raised:
        read("t", body, MAPPING)
    assert raised.value.field == "body"


def test_the_networks_own_is_passed_over() -> None:
    """Ports that no application has."""
    assert read("t", msgspec.json.encode(BODY), MAPPING | {"port": "224"}) is None


@pytest.mark.parametrize("key", ["device", "data", "port"])
def test_settings_that_are_missing_are_named(key: str) -> None:
    """Nothing is read without them."""
    with pytest.raises(InvalidInput) as raised:
        heard(BODY, **{key: ""})
    assert raised.value.field == key


@pytest.mark.parametrize(("key", "text"), [("device", "dev"), ("port", "8x"), ("time", "12")])
def test_settings_are_pointers(key: str, text: str) -> None:
    """And the port may be a number."""
    check({"port": "85", "device": "/a", "time": ""})
    with pytest.raises(InvalidInput) as raised:
        check({key: text})
    assert raised.value.field == key
