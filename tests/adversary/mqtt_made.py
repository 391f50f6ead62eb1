"""Generated MQTT: client ids, wills, topics and packets that are nobody's, another's or broken."""

import json

from hypothesis import strategies as st

from tests.adversary.mqtt_wire import Connect, Odd, Packet, Publish, Session, Subscribe, Will

WHOSE = ("my", "neighbour", "their")
_own = [f"thing/<my_sn>/up/{channel}" for channel in ("report", "event", "reply")]
_others = [
    f"thing/<{whose}_sn>/{end}"
    for whose in WHOSE
    for end in ("up/report", "up/reply", "up/x/y", "down/command", "down", "down/#", "up/#", "#")
]
_inner = [
    "$MQTT/msgs/thing/<their_sn>/down/command",
    "$MQTT/msgs/thing/<their_sn>/up/report",
    "$MQTT/rmsgs/thing/<their_sn>/down/command",
    "$MQTT/sess/x",
    "$MQTT/sub/#",
    "$MQTT/sub/x",
    "$MQTT/JSA/x/SC/y",
    "$MQTT/deliver/pubrel/x",
    "$MQTT/#",
    "+/sub/#",
    "$JS/API/STREAM/DELETE/UPLINK",
    "$JS/ACK/UPLINK/ingest/1/1/1/1/0",
    "$SYS/#",
    "$SYS/REQ/USER/AUTH",
    "event/<their_tenant>/#",
    "event/<their_tenant>/device/<their_device>/reported",
    "dead/uplink/<their_sn>",
    "rpc/auth/create_application",
    "rpc/#",
    "_INBOX/auth/x",
    "relay/thing/<their_sn>/up/report",
    "nowhere/x",
    "ingest/#",
    "beaver-iot/mqtt@<their_tenant>/#",
    "beaver-iot/mqtt@<their_tenant>/x",
    "beaver-iot/+/+",
    "spBv1.0/group/NBIRTH/<their_sn>",
    "spBv1.0/group/NDEATH/<their_sn>",
    "spBv1.0/#",
    "$sparkplug/certificates/#",
    "#",
    "+/+/+/+",
    "thing/+/down/command",
    "thing/<my_sn>/down/#",
    "thing//up/report",
    "thing.<their_sn>.up.report",
    "thing/<my_sn>/up/report/../../x",
]
_levels = st.lists(
    st.sampled_from(
        ["thing", "<my_sn>", "<their_sn>", "up", "down", "report", "command", "+", "#", "", "$MQTT"]
    )
    | st.text(max_size=5),
    min_size=1,
    max_size=12,
).map("/".join)
_long = st.sampled_from(["thing/<my_sn>/up/" + "x" * 60_000, "thing/<my_sn>/up" + "/x" * 9_000])
topics = st.one_of(
    st.sampled_from(_own), st.sampled_from(_others), st.sampled_from(_inner), _levels, _long
)
_payloads = st.one_of(
    st.sampled_from(
        [
            json.dumps({"properties": {"counter": 1}}),
            json.dumps({"eventId": "alarm", "outputs": {"level": 1}}),
            json.dumps({"commandId": 1_000_000, "status": "SUCCESS"}),
            json.dumps({"commandId": 1_000_000, "kind": "SET_PROPERTIES", "properties": {}}),
            '{"properties":' + '{"a":' * 200,
            "",
        ]
    ),
    st.binary(max_size=64),
    st.sampled_from([b"x" * 300_000, b"x" * (1024 * 1024 + 1)]),
)
_wills = st.none() | st.builds(
    Will, topics, st.sampled_from(["", '{"properties":{"counter":1}}']), st.integers(0, 2)
)
_client_ids = st.sampled_from(
    [
        "",
        "<my_sn>",
        "<their_sn>",
        "<their_sn>-0",
        "<their_sn>-1",
        "<their_sleeper>-away",
        "<neighbour_sn>-1",
        "<neighbour_sleeper>-away",
        "<my_sn>-x",
        "a/b",
        "x" * 200,
        "#",
        "a b",
    ]
) | st.text(max_size=30)

_packets: st.SearchStrategy[Packet] = st.one_of(
    st.builds(
        Publish,
        topics,
        _payloads,
        qos=st.integers(0, 3),
        retain=st.booleans(),
        duplicate=st.booleans(),
        number=st.integers(0, 65_535),
    ),
    st.builds(Subscribe, topics, st.integers(0, 3)),
    st.builds(
        Odd,
        st.integers(0, 255).filter(lambda kind: kind >> 4 not in {12, 14}),
        st.binary(max_size=40),
    ),
)
sessions = st.lists(
    st.builds(
        Session,
        st.builds(Connect, _client_ids, st.booleans(), _wills),
        st.lists(_packets, max_size=10),
        dies=st.booleans(),
    ),
    min_size=2,
    max_size=6,
)
