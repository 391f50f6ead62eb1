"""Ids and seals of a tenant that moves to another installation."""

import json
import secrets
from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import Any

import pytest

from deploy.backup import relocation
from deploy.backup.relocation import Relocation
from deploy.backup.tenant_collections import find_collection
from libs.common.identity.seal import Seal
from services.device.telemetry.partitions import KEY_FORMAT
from services.workflow.vault import Vault

THING, FLOW = 1_000_002, 1_000_007
ENTITY = THING * 8192 + 3


def _key() -> str:
    return urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")


BEFORE, AFTER = _key(), _key()
SEALS = (Seal(BEFORE), Seal(AFTER))


def make_relocation() -> Relocation:
    """Return a move that shifts things by 500, flows by 40 and users by 7."""
    shifts = {"device.things": 500, "workflow.flows": 40, "auth.users": 7, "auth.roles": 1}
    ends = {"device.things": 1_000_100, "workflow.flows": 1_000_100}
    return Relocation(shifts, ends, "acme", SEALS, SEALS)


def relocate(collection: str, document: dict[str, Any], move: Relocation) -> dict[str, Any]:
    """Return a document of a collection after the move."""
    row = find_collection(collection)
    assert row is not None
    relocation.shift_ids(document, row.ids, move)
    if row.rewrite is not None:
        row.rewrite(document, move)
    return document


def test_ids_in_fields_and_lists_are_shifted() -> None:
    """Missing ids and ids of other sequences do not change."""
    user = {"_id": 1_000_001, "roles": [1_000_001, 1_000_002], "email": "a@b.c"}
    assert relocate("auth.users", user, make_relocation()) == {
        "_id": 1_000_008,
        "roles": [1_000_002, 1_000_003],
        "email": "a@b.c",
    }
    unassigned = {"_id": THING, "application": None}
    assert relocate("device.devices", unassigned, make_relocation()) == {
        "_id": 1_000_502,
        "application": None,
    }


def test_alarms_move_with_their_rules_and_states() -> None:
    """Keys are rebuilt from their parts; users are stored as text."""
    state = {"_id": f"9.2.{THING}", "rule": 9, "generation": 2, "device": THING, "alarm": 5}
    key = f"9.2.{THING + 500}"
    assert relocate("device.alarm_states", state, make_relocation())["_id"] == key
    alarm = {"_id": 5, "state": f"9.2.{THING}", "rule": 9, "device": THING}
    named = alarm | {"claimedBy": "1000001", "clearedBy": "RULE"}
    moved = {"_id": 5, "state": key, "rule": 9, "device": THING + 500}
    after = moved | {"claimedBy": "1000008", "clearedBy": "RULE"}
    assert relocate("device.alarms", named, make_relocation()) == after


def test_groups_and_tags_move_with_devices_and_entities() -> None:
    """Devices and grants refer to groups by id, tagged entities have the entity's id."""
    move = make_relocation()
    shifts = {**move.shifts, "device.device_groups": 60, "device.entity_tags": 3}
    move = replace(move, shifts=shifts)
    device = {"_id": THING, "group": 1_000_001}
    assert relocate("device.devices", device, move)["group"] == 1_000_061
    grant = {"role": 1_000_001, "type": "DEVICE_GROUP", "id": 1_000_001}
    assert relocate("auth.grants", grant, move)["id"] == 1_000_061
    tagged = {"_id": ENTITY, "tags": [1_000_001, 1_000_004]}
    assert relocate("device.tagged_entities", tagged, move) == {
        "_id": ENTITY + 500 * 8192,
        "tags": [1_000_004, 1_000_007],
    }


def test_canvases_move_with_their_widgets() -> None:
    """The owner and the ids in widgets of dashboards and devices are shifted."""
    move = make_relocation()
    shifts = {**move.shifts, "management.dashboards": 9, "device.device_groups": 60}
    ends = {**move.ends, "device.device_groups": 1_000_100}
    move = replace(move, shifts=shifts, ends=ends)
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
        found = relocate(collection, canvas(**more), move)
        assert (found["_id"], found.get("attachId")) == (1_000_010, attached)
        assert (found["entityIds"], found["deviceIds"]) == ([ENTITY + 500 * 8192], [THING + 500])
        assert found["widgets"][0]["id"] == 1_000_012
        devices = json.loads(found["widgets"][0]["data"])["config"]["devices"]
        assert devices == [{"id": str(THING + 500), "group_id": "1000061"}]
    home = {"_id": 1_000_001, "dashboard": 1_000_001}
    assert relocate("management.home_dashboards", home, move) == {
        "_id": 1_000_008,
        "dashboard": 1_000_010,
    }


def test_a_key_of_history_keeps_its_time_and_sequence() -> None:
    """Only the device changes."""
    record = {"_id": KEY_FORMAT.pack(THING, 1_700_000_000_000, 9)}
    (found,) = relocate("device.history_20240101", record, make_relocation()).values()
    assert KEY_FORMAT.unpack(found) == (THING + 500, 1_700_000_000_000, 9)


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
def test_ids_in_widgets_are_found_by_range_or_name(before: Any, after: Any) -> None:
    """Ranges identify entities, member names devices, and service keys flows."""
    widget = {"_id": 1_000_000, "widgets": [{"id": 1_000_000, "data": json.dumps({"a": before})}]}
    found = relocate("management.dashboards", widget, make_relocation())
    assert json.loads(found["widgets"][0]["data"]) == {"a": after}


def test_the_service_of_a_flow_gets_the_new_flow_id() -> None:
    """The identifiers of other custom entities do not change."""
    service = {"_id": THING, "identifier": str(FLOW), "flow": FLOW}
    assert relocate("device.things", service, make_relocation())["identifier"] == str(FLOW + 40)
    custom = {"_id": THING, "identifier": str(FLOW)}
    assert relocate("device.things", custom, make_relocation())["identifier"] == str(FLOW)


def test_flow_secrets_are_sealed_with_the_key_of_the_target() -> None:
    """The designs, which precede the secrets, contain their seal contexts."""
    node = {
        "id": "ask",
        "componentName": "httpRequest",
        "data": {"parameters": {"url": "http://x.example/a", "header": {"X-Key": "hunter2"}}},
    }
    text = json.dumps({"nodes": [node], "edges": []})
    concealed = Vault(None, relocation.NODE_REGISTRY, BEFORE).replace_secrets_by_marks("acme", text)  # type: ignore[arg-type]
    ((mark, sealed),) = concealed.new_secrets.items()
    move = make_relocation()
    relocate("workflow.flows", {"_id": FLOW, "userId": None, "design": concealed.text}, move)
    row = relocate("workflow.flow_secrets", {"_id": mark, "sealed": sealed, "flows": [FLOW]}, move)
    assert row["flows"] == [FLOW + 40]
    assert Seal(AFTER).open(row["sealed"], move.contexts[mark]) == "hunter2"


def test_the_secret_of_openapi_client_is_sealed_again() -> None:
    """The seal context is the tenant."""
    account = {"_id": "acme", "secret": SEALS[0].seal("hunter2", "acme")}
    found = relocate("management.openapi_accounts", account, make_relocation())
    assert SEALS[1].open(found["secret"], "acme") == "hunter2"


def test_grants_and_audit_entries_get_the_new_ids() -> None:
    """Integrations have names instead of ids."""
    grant = {"role": 1_000_000, "type": "ENTITY", "id": ENTITY}
    assert relocate("auth.grants", grant, make_relocation())["id"] == ENTITY + 500 * 8192
    grant = {"role": 1_000_000, "type": "INTEGRATION", "id": "lamps"}
    assert relocate("auth.grants", grant, make_relocation()) == {**grant, "role": 1_000_001}
    entry = {
        "_id": "x",
        "actor": {"kind": "user", "id": "1000000"},
        "object": {"type": "session", "id": "1000000"},
    }
    found = relocate("auth.audit", entry, make_relocation())
    assert (found["actor"]["id"], found["object"]["id"]) == ("1000007", "1000007")
    operator = {"_id": "y", "actor": {"kind": "user", "id": "0"}}
    assert relocate("auth.audit", operator, make_relocation())["actor"]["id"] == "0"


def test_notification_settings_move_with_user_and_secret() -> None:
    """Ids are shifted, and the webhook's secret is sealed with the target's key."""
    context = "acme.alarm-webhook.https://one.example"
    hook = {"url": "https://one.example/x", "secret": Seal(BEFORE).seal("s3cret", context)}
    settings = {"device_ids": [THING], "webhook": hook}
    document = {"_id": 1_000_001, "tenant": "acme", "login": "a@b.io", "settings": settings}
    moved = relocate("workflow.alarm_notifications", document, make_relocation())
    assert moved["_id"] == 1_000_008
    assert moved["settings"]["device_ids"] == [THING + 500]
    sealed = moved["settings"]["webhook"]["secret"]
    assert Seal(AFTER).open(sealed, context) == "s3cret"
