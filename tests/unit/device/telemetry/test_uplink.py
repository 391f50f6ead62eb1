"""What a device sends over HTTP, checked before it is accepted."""

import time

import msgspec
import pytest
from nats.aio.msg import Msg

from libs.common.errors import InvalidInput, MalformedRequest
from services.device.telemetry.http_ingest import split_entries, validate_entries
from services.device.telemetry.uplink import (
    FULL_BATCH_MESSAGES,
    MAX_PAYLOAD_BYTES,
    check_message,
    may_linger,
)
from services.device.things.model import Thing
from tests.unit.device.things.examples import thing

NOW = int(time.time() * 1000)
RETENTION = 30 * 86_400_000
DEEP = b"[" * 200_000 + b"]" * 200_000


def test_one_entry_and_an_array_are_distinguished():
    """Leading white space changes nothing, and entries keep their bytes."""
    assert split_entries(b' {"a": 1}') == ([b' {"a": 1}'], False)
    assert split_entries(b' [{"a": 1}, 2 ]') == ([b'{"a": 1}', b"2"], True)


@pytest.mark.parametrize("body", [b"", b"{", b"[1,", b"{} {}", b"nope", DEEP])
def test_a_body_that_is_no_json_is_malformed(body: bytes):
    """400 with the code of a syntax error."""
    with pytest.raises(MalformedRequest):
        split_entries(body)


@pytest.mark.parametrize(("count", "good"), [(0, False), (1, True), (1000, True), (1001, False)])
def test_an_array_has_one_to_a_thousand_entries(count: int, *, good: bool):
    """More or less is a 400 that says so."""
    body = msgspec.json.encode([{}] * count)
    if good:
        assert len(split_entries(body)[0]) == count
    else:
        with pytest.raises(InvalidInput, match="1 to 1000"):
            split_entries(body)


@pytest.fixture
def mine() -> Thing:
    return thing()


def test_entries_are_accepted_and_refused_one_by_one(mine: Thing):
    """Whole refusals and bad properties carry the index of their entry and the field."""
    entries = [
        b'{"properties":{"temperature":1}}',
        b'{"properties":{"temperature":"x"}}',
        b'{"properties":{"temperature":1,"nope":2}}',
        b'{"ts":%d,"properties":{"temperature":1}}' % (NOW + 600_000),
        b'{"properties":' + DEEP[:100_000] + b"}",
        b'{"properties":{"temperature":' + b" " * MAX_PAYLOAD_BYTES + b"1}}",
    ]
    accepted, refused, whole = validate_entries("report", mine, entries, NOW, RETENTION)
    assert accepted == [entries[0], entries[2]]
    assert [(one.index, one.field) for one in refused] == [
        (1, "properties.temperature"),
        (2, "properties.nope"),
        (3, "ts"),
        (4, "properties"),
        (5, "entry"),
    ]
    assert [(one.raw, one.reason) for one in whole[:2]] == [
        (entries[1], "properties.temperature: must be a number"),
        (entries[3], "ts: is more than five minutes in the future"),
    ]
    assert [one.raw for one in whole[2:]] == entries[4:]


def test_events_are_checked_whole(mine: Thing):
    """An unknown event or a bad output refuses it."""
    entries = [
        b'{"eventId":"alarm","outputs":{"level":1}}',
        b'{"eventId":"nope","outputs":{}}',
        b'{"eventId":"alarm","outputs":{"level":"x"}}',
    ]
    accepted, refused, _ = validate_entries("event", mine, entries, NOW, RETENTION)
    assert accepted == entries[:1]
    assert [one.index for one in refused] == [1, 2]


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b'{"commandId":1,"status":"DONE"}', "status"),
        (b'{"commandId":"x","status":"FAILED"}', "commandId"),
        (b'{"commandId":18446744073709551615,"status":"FAILED"}', "commandId"),
        (b'{"status":"FAILED"}', "commandId"),
        (b'{"x":' + DEEP + b',"commandId":1,"status":"SUCCESS"}', "reply"),
    ],
    ids=range(5),
)
def test_a_reply_that_closes_nothing_names_its_field(mine: Thing, raw: bytes, field: str):
    """Its shape is checked at once; whether its command exists is found out later."""
    with pytest.raises(InvalidInput) as caught:
        check_message("reply", mine, raw, NOW, RETENTION)
    assert caught.value.field == field


@pytest.mark.parametrize("number", ["7", "007", 7])
def test_the_id_of_a_reply_may_be_text(mine: Thing, number: object):
    """As many JSON writers make it."""
    raw = msgspec.json.encode({"commandId": number, "status": "SUCCESS"})
    assert check_message("reply", mine, raw, NOW, RETENTION) == []


def message(subject: str, **headers: str) -> Msg:
    return Msg(None, subject=subject, headers=headers or None)  # type: ignore[arg-type]


REPORT = message("thing.sn1.up.report")
LATER = {
    "MQTT, QoS 1": message("$MQTT.msgs.thing.sn1.up.report"),
    "MQTT, QoS 0": message("thing.sn1.up.report", **{"Nmqtt-Pub": "0"}),
    "reply": message("thing.sn1.up.reply"),
    "frame": message("thing.sn1.up.frame"),
    "report of a flow": message("thing.sn1.up.report", **{"Thingway-Notify": "ingest.stored.1"}),
}


def test_a_small_batch_of_reports_over_http_may_linger():
    """Also with traces, and in partitions; a larger batch gains nothing."""
    traced = message("uplink.0.sn1.event", traceparent="00-1-1-01")
    assert may_linger([REPORT, traced])
    assert not may_linger([REPORT] * FULL_BATCH_MESSAGES)


@pytest.mark.parametrize("urgent", LATER.values(), ids=LATER)
def test_a_batch_with_an_urgent_message_does_not_linger(urgent: Msg):
    """MQTT reports, replies, frames and reports of flows are processed at once."""
    assert not may_linger([REPORT, urgent])
