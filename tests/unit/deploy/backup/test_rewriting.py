"""Ids and seals of a tenant that moves."""

import json
import secrets
from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import Any

import pytest

from deploy.backup import rewriting
from deploy.backup.collections import row_of
from deploy.backup.rewriting import Moving
from libs.common.identity.seal import Seal
from services.device.telemetry.partitions import KEY
from services.workflow.vault import Vault

THING, FLOW = 1_000_002, 1_000_007
ENTITY = THING * 8192 + 3


def _key() -> str:
    return urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")


BEFORE, AFTER = _key(), _key()
SEALS = (Seal(BEFORE), Seal(AFTER))


def moving() -> Moving:
    """Things are raised by 500, flows by 40, users by 7."""
    shifts = {"device.things": 500, "workflow.flows": 40, "auth.users": 7, "auth.roles": 1}
    ends = {"device.things": 1_000_100, "workflow.flows": 1_000_100}
    return Moving(shifts, ends, "acme", SEALS, SEALS)


def changed(collection: str, document: dict[str, Any], on_the_way: Moving) -> dict[str, Any]:
    """A document of a collection as it arrives."""
    row = row_of(collection)
    assert row is not None
    rewriting.shift(document, row.ids, on_the_way)
    if row.change is not None:
        row.change(document, on_the_way)
    return document


def test_ids_in_fields_and_lists_are_raised_by_what_their_sequence_is() -> None:
    """What is not there, and what has no sequence, stays."""
    user = {"_id": 1_000_001, "roles": [1_000_001, 1_000_002], "email": "a@b.c"}
    assert changed("auth.users", user, moving()) == {
        "_id": 1_000_008,
        "roles": [1_000_002, 1_000_003],
        "email": "a@b.c",
    }
    nobodys = {"_id": THING, "application": None}
    assert changed("device.devices", nobodys, moving()) == {"_id": 1_000_502, "application": None}


def test_alarms_move_with_their_rules_and_states() -> None:
    """Keys are made anew of what is in them; users are named by text."""
    state = {"_id": f"9.2.{THING}", "rule": 9, "generation": 2, "device": THING, "alarm": 5}
    key = f"9.2.{THING + 500}"
    assert changed("device.alarm_states", state, moving())["_id"] == key
    alarm = {"_id": 5, "state": f"9.2.{THING}", "rule": 9, "device": THING}
    named = alarm | {"claimedBy": "1000001", "clearedBy": "RULE"}
    moved = {"_id": 5, "state": key, "rule": 9, "device": THING + 500}
    after = moved | {"claimedBy": "1000008", "clearedBy": "RULE"}
    assert changed("device.alarms", named, moving()) == after


def test_groups_and_tags_move_with_what_has_them() -> None:
    """A device names its group, a grant too; an entity that has tags is named by its id."""
    on_the_way = moving()
    shifts = {**on_the_way.shifts, "device.device_groups": 60, "device.entity_tags": 3}
    on_the_way = replace(on_the_way, shifts=shifts)
    device = {"_id": THING, "group": 1_000_001}
    assert changed("device.devices", device, on_the_way)["group"] == 1_000_061
    grant = {"role": 1_000_001, "type": "DEVICE_GROUP", "id": 1_000_001}
    assert changed("auth.grants", grant, on_the_way)["id"] == 1_000_061
    tagged = {"_id": ENTITY, "tags": [1_000_001, 1_000_004]}
    assert changed("device.tagged_entities", tagged, on_the_way) == {
        "_id": ENTITY + 500 * 8192,
        "tags": [1_000_004, 1_000_007],
    }


def test_canvases_move_with_what_is_on_them() -> None:
    """Those of a dashboard and of a device: whose they are, and what their widgets show."""
    on_the_way = moving()
    shifts = {**on_the_way.shifts, "management.dashboards": 9, "device.device_groups": 60}
    ends = {**on_the_way.ends, "device.device_groups": 1_000_100}
    on_the_way = replace(on_the_way, shifts=shifts, ends=ends)
    widget = {"config": {"devices": [{"id": str(THING), "group_id": "1000001"}]}, "id": "1"}

    def canvas(**more: Any) -> dict[str, Any]:
        widgets = [{"id": 1_000_003, "data": json.dumps(widget)}]
        content = {"widgets": widgets, "entityIds": [ENTITY], "deviceIds": [THING]}
        return {"_id": 1_000_001, **content, **more}

    for collection, more, attached in (
        ("management.dashboards", {}, None),
        ("management.canvases", {"attachType": "DEVICE", "attachId": THING}, THING + 500),
        ("management.canvases", {"attachType": "DASHBOARD", "attachId": 1_000_000}, 1_000_009),
    ):
        found = changed(collection, canvas(**more), on_the_way)
        assert (found["_id"], found.get("attachId")) == (1_000_010, attached)
        assert (found["entityIds"], found["deviceIds"]) == ([ENTITY + 500 * 8192], [THING + 500])
        assert found["widgets"][0]["id"] == 1_000_012
        devices = json.loads(found["widgets"][0]["data"])["config"]["devices"]
        assert devices == [{"id": str(THING + 500), "group_id": "1000061"}]
    home = {"_id": 1_000_001, "dashboard": 1_000_001}
    assert changed("management.home_dashboards", home, on_the_way) == {
        "_id": 1_000_008,
        "dashboard": 1_000_010,
    }


def test_a_key_of_history_keeps_its_time_and_sequence() -> None:
    """Only the device is another one."""
    record = {"_id": KEY.pack(THING, 1_700_000_000_000, 9)}
    (found,) = changed("device.history_20240101", record, moving()).values()
    assert KEY.unpack(found) == (THING + 500, 1_700_000_000_000, 9)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ENTITY, ENTITY + 500 * 8192),
        (str(ENTITY), str(ENTITY + 500 * 8192)),
        ({"deviceId": str(THING)}, {"deviceId": str(THING + 500)}),
        ({"device_id": THING}, {"device_id": THING + 500}),
        ({"most": THING}, {"most": THING}),
        (1_700_000_000_000, 1_700_000_000_000),
        ({"deviceId": None, "on": True, "x": 1.5}, {"deviceId": None, "on": True, "x": 1.5}),
        ([f"system.integration.{FLOW}.text"], [f"system.integration.{FLOW + 40}.text"]),
        ("system.integration.1000007a", "system.integration.1000007a"),
        (f"{ENTITY} degrees", f"{ENTITY} degrees"),
    ],
)
def test_ids_in_what_consoles_keep_are_known_by_their_range_or_name(
    before: Any, after: Any
) -> None:
    """Of entities everywhere, of devices by the field's name, of flows in keys of services."""
    widget = {"_id": 1_000_000, "widgets": [{"id": 1_000_000, "data": json.dumps({"a": before})}]}
    found = changed("management.dashboards", widget, moving())
    assert json.loads(found["widgets"][0]["data"]) == {"a": after}


def test_the_service_of_a_flow_is_called_as_the_flow() -> None:
    """Its identifier is the flow's id; that of other custom entities stays."""
    service = {"_id": THING, "identifier": str(FLOW), "flow": FLOW}
    assert changed("device.things", service, moving())["identifier"] == str(FLOW + 40)
    own = {"_id": THING, "identifier": str(FLOW)}
    assert changed("device.things", own, moving())["identifier"] == str(FLOW)


def test_secrets_of_flows_open_with_the_other_key() -> None:
    """Their context stands in the designs, which come first."""
    node = {
        "id": "ask",
        "componentName": "httpRequest",
        "data": {"parameters": {"url": "http://x.example/a", "header": {"X-Key": "hunter2"}}},
    }
    text = json.dumps({"nodes": [node], "edges": []})
    concealed = Vault(None, rewriting.REGISTRY, BEFORE).conceal("acme", text)  # type: ignore[arg-type]
    ((mark, sealed),) = concealed.given.items()
    on_the_way = moving()
    changed("workflow.flows", {"_id": FLOW, "userId": None, "design": concealed.text}, on_the_way)
    row = changed(
        "workflow.flow_secrets", {"_id": mark, "sealed": sealed, "flows": [FLOW]}, on_the_way
    )
    assert row["flows"] == [FLOW + 40]
    assert Seal(AFTER).open(row["sealed"], on_the_way.contexts[mark]) == "hunter2"


def test_the_account_of_another_platform_keeps_its_secret() -> None:
    """It is sealed for its tenant."""
    account = {"_id": "acme", "secret": SEALS[0].seal("hunter2", "acme")}
    found = changed("management.openapi_accounts", account, moving())
    assert SEALS[1].open(found["secret"], "acme") == "hunter2"


def test_what_is_granted_and_what_was_done_names_the_new_ids() -> None:
    """Integrations have names."""
    grant = {"role": 1_000_000, "type": "ENTITY", "id": ENTITY}
    assert changed("auth.grants", grant, moving())["id"] == ENTITY + 500 * 8192
    grant = {"role": 1_000_000, "type": "INTEGRATION", "id": "lamps"}
    assert changed("auth.grants", grant, moving()) == {**grant, "role": 1_000_001}
    entry = {
        "_id": "x",
        "actor": {"kind": "user", "id": "1000000"},
        "object": {"type": "session", "id": "1000000"},
    }
    found = changed("auth.audit", entry, moving())
    assert (found["actor"]["id"], found["object"]["id"]) == ("1000007", "1000007")
    operator = {"_id": "y", "actor": {"kind": "user", "id": "0"}}
    assert changed("auth.audit", operator, moving())["actor"]["id"] == "0"


def test_notifications_of_alarms_go_with_their_user_and_secrets() -> None:
    """Ids are raised, and secrets sealed with the key of the target."""
    context = "acme.alarm-webhook.https://one.example"
    hook = {"url": "https://one.example/x", "secret": Seal(BEFORE).seal("s3cret", context)}
    settings = {"device_ids": [THING], "webhook": hook}
    document = {"_id": 1_000_001, "tenant": "acme", "login": "a@b.io", "settings": settings}
    moved = changed("workflow.alarm_notifications", document, moving())
    assert moved["_id"] == 1_000_008
    assert moved["settings"]["device_ids"] == [THING + 500]
    sealed = moved["settings"]["webhook"]["secret"]
    assert Seal(AFTER).open(sealed, context) == "s3cret"
