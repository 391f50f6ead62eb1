"""What is passed on from outside, and what is not."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.bus.accounts import (
    ACK_SUBJECTS,
    CREATE_CONSUMER_SUBJECT,
    INTEGRATION_SUBJECTS,
    PULL_SUBJECT,
    RELAYED_SUBJECTS,
    UPLINK_SUBJECTS,
)
from services.gateway.relay.rules import (
    MessageSender,
    RejectedError,
    build_relayed_headers,
    limit_body,
    limit_consumer_creation,
    limit_pull,
    parse_sender,
    require_own_reply_subject,
)

DEVICE = MessageSender("Ab1", "_INBOX.sn.Ab1.")
CREATION = "$JS.API.CONSUMER.CREATE.EVENTS.app1.event.t1.>"
CONFIG = {"durable_name": "app1", "ack_policy": "explicit", "filter_subject": "event.t1.>"}


def creation(stream: str = "EVENTS", **changes: object) -> bytes:
    return msgspec.json.encode({"stream_name": stream, "config": CONFIG | changes})


@pytest.mark.parametrize(
    ("pattern", "subject", "user"),
    [
        (UPLINK_SUBJECTS, "thing.Ab1.up.report", "Ab1"),
        (PULL_SUBJECT, "$JS.API.CONSUMER.MSG.NEXT.EVENTS.app1", "app.app1"),
        (CREATE_CONSUMER_SUBJECT, CREATION, "app.app1"),
        (ACK_SUBJECTS, "$JS.ACK.EVENTS.app1.1.2.3.4.5", "app.app1"),
        (INTEGRATION_SUBJECTS[0], "rpc.management.announce_integration.lamps", "integration.lamps"),
        (INTEGRATION_SUBJECTS[1], "rpc.device.report.lamps", "integration.lamps"),
    ],
)
def test_the_subject_names_the_sender(pattern, subject, user):
    """nats-server has checked the name in it."""
    assert parse_sender(subject).user == user


def test_every_relayed_subject_has_a_speaker_with_an_inbox_of_its_own():
    """No two kinds of speakers share inboxes."""
    inboxes = {parse_sender(one.replace(">", "x")).inbox.split(".")[1] for one in RELAYED_SUBJECTS}

    assert inboxes == {"sn", "app", "integration"}


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.API.STREAM.DELETE.UPLINK",
        "thing.Other.down.command",
        "_INBOX.sn.Ab",
        "_INBOX.sn.Ab1",
        "_INBOX.sn.Ab12.x",
        "_INBOX.sn.ab1.x",
        "_INBOX.app.Ab1.x",
        "_INBOX.sn.Ab1.>",
        "_INBOX.sn.Ab1.*.x",
        "event.t2.device.1.reported",
        "$JS.ACK.UPLINK.ingest.1.1.1.1.0",
        "relay.thing.Other.up.report",
    ],
)
def test_an_answer_goes_to_the_own_inbox_only(reply):
    """Anywhere else the answer would be heard by, or do something for, somebody else."""
    with pytest.raises(RejectedError):
        require_own_reply_subject(DEVICE, reply)


@given(st.text(max_size=60))
def test_whatever_a_reply_is_it_is_the_own_inbox_or_refused(reply):
    """There is no third way."""
    try:
        assert require_own_reply_subject(DEVICE, reply).startswith(DEVICE.inbox) or not reply
    except RejectedError:
        assert reply


def test_message_ids_are_the_speakers_own():
    """Two devices that count from 1 are two."""
    kept = build_relayed_headers(DEVICE, {"Nats-Msg-Id": "1"})

    assert kept == {"Nats-Msg-Id": "Ab1/1"}


@pytest.mark.parametrize(
    "name",
    [
        "Nats-Expected-Stream",
        "Nats-Rollup",
        "Nats-TTL",
        "Nmqtt-Pub",
        "Thingway-Notify",
        "x",
        "Status",
    ],
)
def test_no_other_header_is_passed_on(name):
    """They would mean something to nats-server or to our services."""
    assert build_relayed_headers(DEVICE, {name: "1"}) == {}


def test_a_batch_is_refused():
    """To take its messages one by one would not be what was asked."""
    with pytest.raises(RejectedError, match="batch"):
        build_relayed_headers(DEVICE, {"Nats-Batch-Id": "1", "Nats-Batch-Sequence": "1"})


@pytest.mark.parametrize("bad", ["a" * 257, "a\nb", "a\rb"])
def test_a_message_id_is_short_and_one_line(bad):
    """A line break would begin another header."""
    with pytest.raises(RejectedError):
        build_relayed_headers(DEVICE, {"Nats-Msg-Id": bad})


def test_a_consumer_is_passed_on_as_it_was_asked_for():
    """With bounds on what it may hold."""
    made = msgspec.json.decode(limit_consumer_creation(CREATION, creation(max_ack_pending=-1)))

    assert made == {"stream_name": "EVENTS", "config": CONFIG | {"max_ack_pending": 50_000}}


@pytest.mark.parametrize(
    "changes",
    [
        {"deliver_subject": "thing.Other.down.command"},
        {"deliver_group": "g"},
        {"filter_subject": "event.t2.>"},
        {"filter_subject": ""},
        {"filter_subjects": ["event.t2.>"]},
        {"durable_name": "app2"},
        {"name": "app2"},
        {"stream": "DEAD"},
        {"direct": True},
        {"priority_groups": ["a"]},
        {"backoff": [1] * 33},
        {"description": "x" * 20_000},
    ],
)
def test_no_other_consumer_is_made(changes):
    """None that pushes, of another name, stream or filter; the refusal says why."""
    with pytest.raises(RejectedError) as refused:
        limit_consumer_creation(CREATION, creation(**changes))

    assert refused.value.reason


def test_a_request_for_a_consumer_that_is_not_utf8_is_refused():
    """As any other that cannot be read."""
    with pytest.raises(RejectedError):
        limit_consumer_creation(CREATION, b'{"stream_name": "\xff"}')


@pytest.mark.parametrize(
    ("body", "passed"),
    [
        (b"", b""),
        (b"7", b"7"),
        (b"10000", b"10000"),
        (b"10001", b"10000"),
        (b"99999999999999", b"10000"),
        (b'{"batch":5,"no_wait":true}', b'{"batch":5,"no_wait":true}'),
        (b'{"batch":5,"expires":9000000000000}', b'{"batch":5,"expires":300000000000}'),
        (b'{"batch":50000}', b'{"batch":10000}'),
    ],
)
def test_a_request_for_events_is_bounded(body, passed):
    """It is open no longer than answers find their way."""
    assert limit_pull(body) == passed


@pytest.mark.parametrize("body", [b"{", b'{"what":1}', b"[" * 5000, b'"\xff"', b"{}" + b" " * 2000])
def test_an_invalid_request_for_events_is_rejected(body):
    """The error names the fault."""
    with pytest.raises(RejectedError):
        limit_pull(body)


@pytest.mark.parametrize("body", [b"", b"+ACK", b"-NAK", b'-NAK {"delay":5}', b"+WPI", b"+TERM"])
def test_acknowledgements_are_forwarded(body):
    """This holds for every kind that JetStream knows."""
    assert limit_body(ACK_SUBJECTS, "$JS.ACK.EVENTS.app1.1.1.1.1.1", body) == body


def test_an_acknowledgement_that_asks_for_more_is_bounded():
    """As a request for events is."""
    body = b'+NXT {"batch":50000}'

    assert (
        limit_body(ACK_SUBJECTS, "$JS.ACK.EVENTS.app1.1.1.1.1.1", body) == b'+NXT {"batch":10000}'
    )


@given(
    st.binary(max_size=200), st.sampled_from([PULL_SUBJECT, CREATE_CONSUMER_SUBJECT, ACK_SUBJECTS])
)
def test_whatever_a_body_is_it_is_passed_on_or_refused(body, pattern):
    """Nothing else fails."""
    with contextlib.suppress(RejectedError):
        assert isinstance(limit_body(pattern, CREATION, body), bytes)
