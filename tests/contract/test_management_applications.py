"""Management API: applications of the device open API, and the audit log, through the gateway."""

from typing import Any

import pytest

from tests.contract.client import Api, new_sn
from tests.contract.console import Console, console_accepted, new_name
from tests.e2e.listening import listening
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("contract")

FIELDS = {"application_id", "tenant_id", "name", "client_id", "events", "allowed_addresses",
          "created_at"}  # fmt: skip
SECRET = {"application_id", "name", "client_id", "client_secret"}


async def log_in(platform: Platform, made: Any) -> Api:
    """The application at the device open API."""
    api = Api(platform.base_url, made["client_id"], made["client_secret"], 0)
    return await api.log_in()


async def test_an_application_is_made_and_calls(platform: Platform, admin: Console) -> None:
    """Its secret is shown once, and opens the device open API."""
    name = new_name()
    made = await admin.done("POST", "/application", {"name": name})
    assert set(made) == SECRET
    api = await log_in(platform, made)
    assert await api.done("POST", "/devices/search", {"pageSize": 10, "pageNumber": 1})
    shown = await admin.done("GET", f"/application/{made['application_id']}")
    assert set(shown) == FIELDS
    assert (shown["name"], shown["allowed_addresses"], shown["events"]) == (name, [], False)
    found = await admin.done("POST", "/application/search", {"keyword": name.upper()})
    assert found == [shown]
    page = {"keyword": name, "page_size": 10, "page_number": 1}
    assert (await admin.done("POST", "/application/search", page))["content"] == [shown]
    await api.close()


async def test_an_application_is_renamed_and_deleted(platform: Platform, admin: Console) -> None:
    """A name is free or taken; with the application its tokens end."""
    made = await admin.done("POST", "/application", {"name": new_name()})
    path, name = f"/application/{made['application_id']}", new_name()
    api = await log_in(platform, made)
    assert (await admin.ask("PUT", path, {"name": name})).status_code == 200
    assert (await admin.done("GET", path))["name"] == name
    answer = await admin.ask("POST", "/application", {"name": name})
    assert (answer.status_code, answer.json()["error_code"]) == (409, "name_repeated")
    assert (await admin.ask("DELETE", path)).status_code == 200
    await api.fails(401, "GET", "/devices/1", code="authentication_failed")
    await admin.fails(404, "data_no_found", "GET", path, field="application_id")
    await api.close()


async def test_an_allow_list_is_held_at_the_gateway(platform: Platform, admin: Console) -> None:
    """From an address that is not listed an application gets no token."""
    made = await admin.done("POST", "/application", {"name": new_name()})
    path = f"/application/{made['application_id']}/allowed-addresses"
    for listed, works in ((["192.0.2.0/24"], False), (["127.0.0.0/8", "::1"], True), ([], True)):
        answer = await admin.ask("PUT", path, {"allowed_addresses": listed})
        assert answer.status_code == 200, answer.text
        api = Api(platform.base_url, made["client_id"], made["client_secret"], 0)
        granted = await api.grant(
            grant_type="client_credentials",
            client_id=api.client_id,
            client_secret=api.client_secret,
        )
        assert (granted.status_code == 200) is works, granted.text
        await api.close()
    for bad in (["nowhere"], ["192.0.2.1/24"], "192.0.2.1", [7]):
        answer = await admin.ask("PUT", path, {"allowed_addresses": bad})
        assert (answer.status_code, "allowed_addresses" in answer.text) == (400, True)


async def test_every_change_is_in_the_audit_log(admin: Console) -> None:
    """An entry has user, action, object, address, request, old and new values, but no secret."""
    name, other = new_name(), new_name()
    answer = await admin.ask("POST", "/application", {"name": name})
    made, request_id = answer.json()["data"], answer.json()["request_id"]
    path = f"/application/{made['application_id']}"
    await admin.ask("PUT", path, {"name": other})
    wanted = {"object_type": "application", "object_id": made["application_id"]}
    page = await admin.done("POST", "/audit/search", wanted)
    assert (page["total"], [entry["action"] for entry in page["content"]]) == (
        2, ["updated", "created"],
    )  # fmt: skip
    updated, created = page["content"]
    assert created["request_id"] == request_id
    assert created["actor"] == {"kind": "user", "id": admin.id, "name": admin.email}
    assert (created["address"], created["object"]["name"]) == ("127.0.0.1", name)
    assert (updated["before"]["name"], updated["after"]["name"]) == (name, other)
    assert made["client_secret"] not in str(page)


async def test_forged_addresses_do_not_reach_the_audit_log(admin: Console) -> None:
    """The address of an entry is the gateway's word, whatever the request says."""
    headers = {"X-Real-IP": "198.51.100.1", "X-Forwarded-For": "198.51.100.1"}
    answer = await admin.ask("POST", "/user/roles", {"name": new_name()}, headers=headers)
    wanted = {"request_id": answer.json()["request_id"]}
    entries = (await admin.done("POST", "/audit/search", wanted))["content"]
    assert [entry["address"] for entry in entries] == ["127.0.0.1"]


async def test_changes_are_published_on_the_bus(platform: Platform, admin: Console) -> None:
    """An application that may read events receives every change of accounts."""
    async with listening(platform, platform.application()) as events:
        email = (await admin.done("GET", "/user"))["email"]
        role = (await admin.done("POST", "/user/roles", {"name": new_name()}))["role_id"]
        event = await events.wait(
            "event.default.auth.role.created", lambda body: body["object"]["id"] == role
        )
    assert (event["actor"]["name"], event["tenant"]) == (email, "default")


async def test_a_device_of_the_console_is_given_to_an_application_and_taken_back(
    platform: Platform, admin: Console
) -> None:
    """The application reads what it reported before; the key goes on, and the log has both."""
    sn, key = new_sn("GIVE"), "param_entities"
    body = {"name": sn, "integration": "direct", key: {"direct.integration.add_device.sn": sn}}
    console_accepted(await admin.ask("POST", "/device", body), data=False)
    (device,) = (await admin.done("POST", "/device/search", {"identifier": sn}))["content"]
    secret = (await admin.done("POST", f"/device/{device['id']}/credentials"))["key"]
    made = await admin.done("POST", "/application", {"name": new_name()})
    api = await log_in(platform, made)

    async def report(value: float) -> None:
        await api.report(sn, secret, {"properties": {"temperature": value}})

    await report(20.5)
    await api.fails(404, "GET", f"/devices/{device['id']}", code="device_not_found")
    path = f"/application/{made['application_id']}/devices/{device['id']}"
    for _ in range(2):
        console_accepted(await admin.ask("PUT", path), data=False)
    page = await api.done("POST", "/devices/search", {"pageSize": 10, "pageNumber": 1})
    assert [one["sn"] for one in page["content"]] == [sn]
    await report(21.5)
    history = await api.done("GET", f"/devices/{device['id']}/properties/history?pageSize=3")
    assert [one["properties"]["temperature"] for one in history["list"]] == [21.5, 20.5]
    wanted = {"application_id": made["application_id"]}
    (shown,) = (await admin.done("POST", "/device/search", wanted))["content"]
    assert (shown["id"], shown["application_name"]) == (device["id"], made["name"])
    console_accepted(await admin.ask("DELETE", path), data=False)
    await api.fails(404, "GET", f"/devices/{device['id']}", code="device_not_found")
    await report(22.5)
    wanted = {"object_type": "application", "object_id": made["application_id"]}
    entries = (await admin.done("POST", "/audit/search", wanted))["content"]
    actions = [entry["action"] for entry in entries]
    assert actions == ["device_taken", "device_given", "device_given", "created"]
    assert entries[0]["after"] == {"device_id": device["id"], "sn": sn, "name": sn}
    await api.close()
