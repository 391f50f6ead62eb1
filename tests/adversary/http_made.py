"""Generated requests: every door of the gateway, others' ids in path, query, header and body."""

import json
import re
from typing import Any

from hypothesis import strategies as st

from tests import apps
from tests.adversary.http_wire import Request

IDS = ("<their_device>", "<their_sn>", "<their_sleeper>", "<their_client>", "<their_application>")
IDS = (*IDS, "<their_model>", "<their_tenant>", "<their_integration>", "1", "0", "-1", "x", "%00")
"""What a path may name: Alice's, or nobody's."""
_PARAMETER = re.compile(r"\{[^}]*\}")
_ids = st.sampled_from(IDS)
_properties = {"properties": {"counter": 1, "led": True, "wifi": {"ssid": "x"}}}
_report = st.sampled_from(
    [
        _properties,
        [_properties] * 3,
        {"commandId": 1_000_000, "status": "SUCCESS"},
        {"eventId": "alarm", "outputs": {"level": 1}},
        {"ts": -1, **_properties},
    ]
)
_ingest = st.builds(
    lambda sn, what: f"/ingest/v1/{sn}/{what}",
    st.sampled_from(["<my_sn>", "<their_sn>", "<neighbour_sn>", "<their_sn>%2f..", "<my_sn>/../x"]),
    st.sampled_from(["report", "event", "reply", "commands", "report?wait=stored", ""]),
)
_operations = st.builds(
    lambda prefix, path, id_: prefix + _PARAMETER.sub(id_, path),
    st.sampled_from(["", "", "/api/v1"]),
    st.deferred(lambda: st.sampled_from([one.path for _, one in apps.operations()])),
    _ids,
)
_doors = st.sampled_from(
    [
        "/",
        "/metrics",
        "/readyz",
        "/docs",
        "/openapi.json",
        "/oauth/token",
        "/oauth2/token",
        "/user/register",
        "/user/status",
        "/public/direct.svg",
        "/public/..%2f..%2fstate.json",
        "//device/openapi/v1/devices/<their_device>",
        "/device/%6fpenapi/v1/devices/<their_device>",
        "/device/openapi/v1/../../../ingest/v1/<their_sn>/report",
        "http://127.0.0.1/device/openapi/v1/devices/<their_device>",
        "/workflow/hooks/<my_hook>",
        "/workflow/hooks/x",
        "*",
    ]
)
_odd_paths = st.text(st.characters(exclude_characters=" \r\n", exclude_categories=["Cs"])).map(
    lambda text: f"/{text}"
)
_queries = st.sampled_from(
    ["", "", "", "?access_token=<their_client>", "?wait=stored", "?tenant=<their_tenant>", "?x[]=1"]
)
_headers = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "x-thingway-principal",
                "X-Thingway-Token",
                "x-thingway-x",
                "x_thingway_principal",
                "Thingway-Hops",
                "Thingway-Stored",
                "TENANT_ID",
                "X-Forwarded-For",
                "X-Forwarded-Host",
                "Forwarded",
                "X-Original-URL",
                "X-HTTP-Method-Override",
                "Transfer-Encoding",
                "Content-Length",
                "Content-Type",
                "Content-Encoding",
                "Expect",
                "Upgrade",
                "Connection",
                "Cookie",
                "Host",
                "Range",
                "traceparent",
                "Nats-Msg-Id",
            ]
        ),
        st.sampled_from(
            [
                "<their_tenant>",
                "<their_sn>",
                "application/json",
                "chunked",
                "gzip",
                "100-continue",
                "websocket",
                "x-thingway-principal",
                "127.0.0.1",
                "DELETE",
                "0",
                "5",
                "eyJ9.eyJ9",
                "x" * 40_000,
            ]
        ),
    ),
    max_size=5,
).map(tuple)


def _named(id_: str) -> list[Any]:
    """Bodies that name something of another."""
    return [
        {"device_id_list": [id_]},
        {"device_id_list": [id_], "group_id": id_, "operation": "OVERWRITE", "tags": []},
        {"operation": "OVERWRITE", "entity_ids": [id_], "added_tag_ids": [id_], "ids": [id_]},
        {"workflow_id_list": [id_]},
        {"device_id": id_, "alarm_ids": [id_], "device_ids": [id_], "rule_id": id_},
        {"exchange": {"direct.device.<their_sn>.led": True}},
        {"exchange": {"direct.device.<their_sn>.measure": {"times": 1}}},
        {"entity_id": id_, "page_size": 10, "page_number": 1},
        {"keyword": "secret", "identifier": id_, "name": id_, "page_size": 100, "page_number": 1},
        {"name": id_, "integration": "<their_integration>", "param_entities": {}},
        {"snDevEUI": "<their_sn>", "name": "mine now"},
        {"resources": [{"id": id_, "type": "DEVICE"}], "tenant": "<their_tenant>"},
        {"allowed_addresses": ["0.0.0.0/0"], "password": "Correct1horse", "enabled": False},
        {"name": "x", "tsl": {"version": "v9", "properties": [], "events": [], "services": []}},
        {"tenant": "<their_tenant>", "email": "x@example.org", "nickname": "x", "password": "Aa1"},
    ]


_bodies: st.SearchStrategy[str | bytes] = st.one_of(
    _ids.flatmap(lambda id_: st.sampled_from(_named(id_))).map(json.dumps),
    _report.map(json.dumps),
    st.sampled_from(
        [
            "grant_type=client_credentials&client_id=<their_client>&client_secret=x",
            "grant_type=password&username=x&password=x&client_id=<their_client>",
            "grant_type=refresh_token&refresh_token=x",
            "[" * 20_000,
            '{"properties":{"counter":' + "9" * 5_000 + "}}",
            "5\r\nhello\r\n0\r\n\r\n",
            "0\r\n\r\nGET /device/openapi/v1/devices HTTP/1.1\r\nHost: x\r\n\r\n",
        ]
    ),
    st.binary(max_size=200),
)
requests = st.builds(
    Request,
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "X"]),
    st.builds(
        lambda path, query: path + (query if "?" not in path else ""),
        st.one_of(_ingest, _operations, _operations, _operations, _doors, _odd_paths),
        _queries,
    ),
    _headers,
    _bodies,
    st.sampled_from([None, None, None, None, 0, 1, -1]),
)
bursts = st.lists(requests, min_size=10, max_size=40)
