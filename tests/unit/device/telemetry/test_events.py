"""Rejected messages are kept without write-only values."""

import msgspec
import pytest
from nats.aio.msg import Msg

from libs.common.bus.subjects import uplink_subject
from services.device.telemetry.batch import build_batch
from services.device.telemetry.events import build_events, dead_message
from services.device.telemetry.uplink import Uplink
from services.device.things.model import Thing
from tests.unit.common.tsl.documents import prop, tsl
from tests.unit.device.things.examples import thing

LOCK = tsl(
    prop("battery", "INT", max=100),
    prop("pinCode", "STRING", "W") | {"propertyKey": "pin"},
    prop("wifi", "STRUCT", "RW"),
    prop("wifi.ssid", "STRING", "RW"),
    prop("wifi.key", "STRING", "W"),
)
SECRETS = ("8642", "s3cret-wifi")


def uplink(payload: bytes, channel: str = "report") -> Uplink:
    return Uplink(
        sn="SN7",
        channel=channel,
        payload=payload,
        sequence=1,
        received=1_700_000_000_000,
        delivered=1,
        message=Msg(None, subject=uplink_subject("SN7", channel)),  # type: ignore[arg-type]
    )


def said(payload: bytes, mine: Thing, channel: str = "report") -> list[bytes]:
    """Return all that is published of a message: events, and entries of `DEAD`."""
    batch = build_batch([uplink(payload, channel)], {"SN7": mine}, 10**15)
    entries = [
        dead_message(one.uplink, one.thing, one.reason, one.faults) for one in batch.rejected
    ]
    return [one.payload for one in (*build_events(batch), *entries)]


@pytest.mark.parametrize(
    "report",
    [
        b'{"properties": {"pin": "8642", "wifi": {"ssid": "home", "key": "s3cret-wifi"}}}',
        b'{"properties": {"battery": 50, "pin": "8642", "wifi": {"key": "s3cret-wifi"}}}',
        b'{"ts": "x", "properties": {"battery": 50, "pin": "8642"}}',
        b'{"properties": {"wifi": {"key": "s3cret-wifi"}, "wifi": {"ssid": 1}}}',
        b'{"properties": {"wifi": "s3cret-wifi", "battery": 101}}',
        b'{"properties": ["8642"]}',
        b'["8642"]',
        b'{"properties": {"pin": "8642"',
        b'{"properties": {"pinCode": "8642", "wifi.key": "s3cret-wifi"}}',
        b'{"properties": {"data": [{"PIN": "8642", "wifi": {"Key": "s3cret-wifi"}}]}}',
        b'{"pin": "8642", "wifi": {"key": "s3cret-wifi"}}',
    ],
)
def test_nothing_that_is_said_of_a_report_has_a_write_only_value(report: bytes):
    found = said(report, thing(tsl=LOCK))

    assert found
    assert not any(secret.encode() in entry for entry in found for secret in SECRETS)


@pytest.mark.parametrize(
    "event",
    [
        b'{"eventId": "set", "outputs": {"pin": "8642", "wifi": {"key": "s3cret-wifi"}}}',
        b'{"eventId": "set", "outputs": {"pin": "8642"',
    ],
)
def test_a_refused_event_is_kept_without_write_only_values(event: bytes):
    found = said(event, thing(tsl=LOCK), "event")

    assert found
    assert not any(secret.encode() in entry for entry in found for secret in SECRETS)


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        (
            b'{"commandId": 5, "status": "FAILED", "error": "8642 is short", "pin": "8642"}',
            {"commandId": 5, "status": "FAILED", "error": "******", "pin": "******"},
        ),
        (b'{"commandId": 5, "status": "FAILED", "error": "8642', "******"),
    ],
)
def test_of_a_refused_reply_only_the_command_and_its_status_are_kept(reply: bytes, kept: object):
    entry = dead_message(uplink(reply, "reply"), thing(tsl=LOCK), "too late", [])

    payload = msgspec.json.decode(entry.payload)["payload"]
    assert (payload if payload == "******" else msgspec.json.decode(payload)) == kept


def test_the_rest_of_a_refused_report_stays_readable():
    refused = said(b'{"properties": {"battery": 101, "pin": "8642"}}', thing(tsl=LOCK))[-1]

    payload = msgspec.json.decode(msgspec.json.decode(refused)["payload"])
    assert payload == {"properties": {"battery": 101, "pin": "******"}}


def test_what_things_without_write_only_values_send_is_kept_as_it_came():
    raw = b'{"properties": {"battery": 101 } }'
    entry = said(raw, thing(tsl=tsl(prop("battery", "INT", max=100))))[-1]

    assert msgspec.json.decode(entry)["payload"] == raw.decode()
