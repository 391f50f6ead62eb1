"""Generated messages of plain NATS: what nats-server and JetStream know, and what nobody knows."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.adversary.nats_wire import Frame, Garbage, Publication, Subscription

MAX_PAYLOAD = 1024 * 1024
STREAMS = ("UPLINK", "EVENTS", "DEAD", "$MQTT_msgs", "$MQTT_sess", "$MQTT_rmsgs", "NEW")
WHOSE = ("my", "neighbour", "their")
CONSUMERS = ("ingest", "auth", "workflow", "*", ">", *(f"<{one}_client>" for one in WHOSE))

_things = [
    f"thing.<{whose}_sn>.{end}"
    for whose in WHOSE
    for end in ("up.report", "up.event", "up.reply", "up.>", "down.command", "down", "down.>")
]
_events = [
    f"event.<{whose}_tenant>.{end}"
    for whose in WHOSE
    for end in ("device.<their_device>.reported", "device.1.deleted", "auth.user.added", ">")
]
_inboxes = [
    f"_INBOX.{whom}.x"
    for whose in WHOSE
    for whom in (
        f"sn.<{whose}_sn>.ear",
        f"app.<{whose}_client>.ear",
        f"integration.<{whose}_integration>.ear",
        f"<{whose}_sn>",
        f"app.<{whose}_client>",
    )
]
_services = [
    "_INBOX.auth.x",
    "_INBOX.device-ingest.>",
    "_INBOX.gateway-bus.x",
    "rpc.auth.issue_device_credentials",
    "rpc.auth.issue_first_device_credentials",
    "rpc.auth.create_application",
    "rpc.auth.get_limits",
    "rpc.device.disconnect",
    "rpc.device.report.<my_integration>",
    "rpc.device.report.<their_integration>",
    "rpc.device.list_devices.<my_integration>",
    "rpc.device.own_values.<their_integration>",
    "rpc.management.announce_integration.<my_integration>",
    "rpc.management.announce_integration.<their_integration>",
    "rpc.integration.<their_integration>.call",
    "rpc.integration.direct.command",
    "rpc.>",
    "ingest.>",
    "ingest.stored.x",
    "dead.uplink.<their_sn>",
    "$SRV.PING",
    "$SRV.INFO.auth",
    "$SYS.REQ.USER.AUTH",
    "$SYS.REQ.SERVER.PING.CONNZ",
    "$SYS.REQ.ACCOUNT.THINGWAY.CONNZ",
    "$SYS.ACCOUNT.THINGWAY.CONNECT",
    "$SYS.>",
    ">",
    "*.>",
]
_mqtt = [
    "$MQTT.sub.>",
    "$MQTT.sub.x",
    "$MQTT.msgs.thing.<their_sn>.down.command",
    "$MQTT.msgs.thing.<their_sn>.up.report",
    "$MQTT.msgs.thing.<my_sn>.up.report",
    "$MQTT.rmsgs.thing.<their_sn>.down.command",
    "$MQTT.sess.x",
    "$MQTT.JSA.x.SC.y",
    "$MQTT.deliver_due.pubrel.x",
    "$MQTT.>",
]
_api = [
    *(
        f"$JS.API.STREAM.{verb}.{stream}"
        for verb in ("DELETE", "PURGE", "UPDATE", "CREATE", "INFO", "MSG.DELETE", "MSG.GET")
        for stream in STREAMS
    ),
    *(f"$JS.API.DIRECT.GET.{stream}" for stream in STREAMS),
    *(f"$JS.API.STREAM.{verb}.EVENTS" for verb in ("SNAPSHOT", "RESTORE", "LEADER.STEPDOWN")),
    *(
        f"$JS.API.CONSUMER.{verb}.{stream}.{consumer}"
        for verb in ("DELETE", "INFO", "MSG.NEXT", "DURABLE.CREATE", "CREATE", "PAUSE", "UNPIN")
        for stream in STREAMS[:3]
        for consumer in CONSUMERS
    ),
    *(
        f"$JS.API.CONSUMER.CREATE.EVENTS.<{whose}_client>.event.<{tenant}_tenant>.>"
        for whose in WHOSE
        for tenant in WHOSE
    ),
    *(
        f"$JS.ACK.{stream}.{consumer}.1.{number}.{number}.1.0"
        for stream in STREAMS[:3]
        for consumer in CONSUMERS
        for number in (1, 2, 1000)
    ),
    "$JS.API.INFO",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.NAMES",
    "$JS.API.CONSUMER.LIST.EVENTS",
    "$JS.API.META.LEADER.STEPDOWN",
    "$JS.API.SERVER.REMOVE",
    "$JS.API.ACCOUNT.PURGE.THINGWAY",
    "$JS.FC.EVENTS.x",
    "$JS.EVENT.>",
    "$JS.>",
]
MINE_TO_SAY = [
    "thing.<my_sn>.up.report",
    "thing.<my_sn>.up.event",
    "thing.<my_sn>.up.reply",
    "$JS.API.CONSUMER.CREATE.EVENTS.<my_client>.event.<my_tenant>.>",
    "$JS.API.CONSUMER.INFO.EVENTS.<my_client>",
    "$JS.API.CONSUMER.DELETE.EVENTS.<my_client>",
    "$JS.API.CONSUMER.MSG.NEXT.EVENTS.<my_client>",
    *(f"$JS.ACK.EVENTS.<my_client>.1.{number}.{number}.1.0" for number in (1, 2, 3)),
    "rpc.device.report.<my_integration>",
    "rpc.device.own_report.<my_integration>",
    "rpc.management.announce_integration.<my_integration>",
]
"""What one of Mallory's logins may publish to: from here answers come."""

_tokens = st.sampled_from(
    [
        "thing",
        "event",
        "dead",
        "rpc",
        "up",
        "down",
        "report",
        "command",
        "*",
        ">",
        "$JS",
        "API",
        "STREAM",
        "CONSUMER",
        "DELETE",
        "UPLINK",
        "EVENTS",
        "$MQTT",
        "sub",
        "sess",
        "_INBOX",
        "app",
        "sn",
        "integration",
        "<my_sn>",
        "<their_sn>",
        "<my_client>",
        "<their_tenant>",
        "x",
        "",
    ]
)
_composed = st.lists(_tokens, min_size=1, max_size=8).map(".".join)
_odd = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x17F, exclude_characters="<>"), min_size=1
)
known = st.sampled_from([*_things, *_events, *_inboxes, *_services, *_mqtt, *_api])
subjects = known | known | _composed | _odd
replies = st.just("") | known | known | _composed

_headers = st.lists(
    st.one_of(
        st.tuples(st.just("Nats-Msg-Id"), st.sampled_from(["1", "<their_sn>", "x" * 300])),
        st.tuples(st.just("Nats-Batch-Id"), st.sampled_from(["b", "c", "d" * 65])),
        st.tuples(st.just("Nats-Batch-Sequence"), st.sampled_from(["1", "2", "-1", "9" * 20])),
        st.tuples(st.just("Nats-Batch-Commit"), st.sampled_from(["1", "eob"])),
        st.tuples(st.just("Nats-Rollup"), st.sampled_from(["all", "sub"])),
        st.tuples(st.just("Nats-TTL"), st.sampled_from(["1s", "never", "0"])),
        st.tuples(
            st.sampled_from(
                [
                    "Nats-Expected-Stream",
                    "Nats-Expected-Last-Sequence",
                    "Nats-Expected-Last-Msg-Id",
                    "Nats-Expected-Last-Subject-Sequence",
                    "Nats-Incr",
                    "Nats-Schedule",
                    "Nats-Schedule-Target",
                    "Nats-Marker-Reason",
                    "Nats-Required-Api-Level",
                    "Nmqtt-Pub",
                    "Nmqtt-Mapped",
                    "Nmqtt-Subject",
                    "Nmqtt-RTopic",
                    "Status",
                    "Thingway-Stored",
                    "Thingway-Hops",
                    "Thingway-Sn",
                    "traceparent",
                    "Reply-To",
                    "Nats-Service-Error",
                    "Nats-Service-Error-Code",
                    "Nats-Trace-Dest",
                ]
            ),
            st.sampled_from(["1", "0", "UPLINK", "thing.<their_sn>.down.command", "@at 2000", ">"])
            | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40),
        ),
    ),
    max_size=5,
).map(tuple)


def _json(content: Any) -> str:
    return json.dumps(content)


_consumer_bodies = st.builds(
    lambda stream, name, deliver, only, more: _json(
        {
            "stream_name": stream,
            "config": {
                "name": name,
                "durable_name": name,
                "ack_policy": "explicit",
                "deliver_policy": "all",
                **({"deliver_subject": deliver} if deliver else {}),
                **({"filter_subject": only} if only else {}),
                **more,
            },
            "action": "",
        }
    ),
    st.sampled_from(STREAMS),
    st.sampled_from(CONSUMERS),
    replies,
    replies,
    st.sampled_from(
        [
            {},
            {"filter_subjects": ["event.>"]},
            {"sources": [{"name": "EVENTS"}]},
            {"sample_freq": "100%"},
            {"headers_only": True},
            {"mem_storage": True},
            {"inactive_threshold": 1},
            {"max_ack_pending": -1},
            {"num_replicas": 9},
        ]
    ),
)
_stream_bodies = st.builds(
    lambda name, subject, more: _json({"name": name, "subjects": [subject], **more}),
    st.sampled_from(STREAMS),
    known,
    st.sampled_from(
        [
            {},
            {"sources": [{"name": "EVENTS"}]},
            {"mirror": {"name": "UPLINK"}},
            {"republish": {"src": ">", "dest": "thing.<their_sn>.down.command"}},
            {"max_msgs": 1},
            {"subject_transform": {"src": ">", "dest": "event.<their_tenant>.x"}},
        ]
    ),
)
_orders = st.sampled_from(
    [
        *("+ACK", "-NAK", '-NAK {"delay": 1}', "+WPI", "+NXT", '+NXT {"batch": 100}', "+TERM x"),
        *(_json({"batch": size, "no_wait": True}) for size in (1, 1000, -1)),
        _json({"batch": 10, "expires": 3_600_000_000_000, "idle_heartbeat": 1_000_000}),
        _json({"batch": 1, "max_bytes": 1, "expires": 1}),
        _json({"batch": 1, "group": "g", "min_pending": 1}),
        _json({"seq": 1}),
        _json({"last_by_subj": "event.<their_tenant>.>"}),
        _json({"filter": "event.<their_tenant>.>"}),
        _json({"tenant": "<their_tenant>", "sn": "<their_sn>", "identifier": "<their_sn>"}),
        "",
    ]
)
_reports = st.sampled_from(
    [
        _json({"properties": {"counter": 1}}),
        _json({"properties": {"x" * 200: {"y": [None] * 50}}}),
        _json({"eventId": "alarm", "outputs": {"level": 1}}),
        _json({"commandId": 1000000, "status": "SUCCESS"}),
        _json({"commandId": 2**63, "status": "x"}),
        '{"ts":1e400,"properties":{}}',
        "[" * 5000,
        '{"properties":{"counter":NaN}}',
    ]
)
_bytes = st.binary(max_size=64) | st.sampled_from(
    [b"x" * 300_000, b"x" * MAX_PAYLOAD, b"x" * (MAX_PAYLOAD + 1)]
)
payloads = st.one_of(_orders, _reports, _consumer_bodies, _stream_bodies, _orders, _bytes)

publications: st.SearchStrategy[Frame] = st.builds(
    Publication, st.sampled_from(MINE_TO_SAY) | subjects, replies, _headers, payloads
)
subscriptions: st.SearchStrategy[Frame] = st.builds(
    Subscription, subjects, st.sampled_from(["", "", "auth", "device", "q"])
)
garbage: st.SearchStrategy[Frame] = st.builds(
    Garbage,
    st.binary(max_size=200)
    | st.sampled_from(
        [
            b"CONNECT {}",
            b'CONNECT {"user":"admin"}',
            b"PUB",
            b"HPUB a 9 1",
            b"PUB x 99999999999",
            b"UNSUB 7",
            b"+OK",
            b"INFO {}",
            b"A+ x",
            b"RMSG x y 1",
            b"LMSG a b 1",
            b"SUB > 1",
        ]
    ),
)
bursts: st.SearchStrategy[list[Frame]] = st.lists(
    publications | publications | publications | subscriptions | garbage, min_size=10, max_size=40
)
