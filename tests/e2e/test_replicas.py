"""Two replicas of every service: what is taken away is gone with the next request on each."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from tests.contract.console import PASSWORD, Console, console_accepted, new_name
from tests.contract.live import opened
from tests.contract.ping import Ping, hosted
from tests.e2e.callers import Application
from tests.e2e.platform import Platform
from tests.e2e.replicas import Replicas, replicas

pytestmark = pytest.mark.xdist_group("platform")

REPORTS = 25


@pytest.fixture(scope="module")
async def both(platform: Platform) -> AsyncIterator[Replicas]:
    """Two replicas of everything, with the super-admin signed in at each."""
    ready = platform.ready
    client = ready.console_client.client_id, ready.console_client.client_secret
    async with replicas(platform) as url:
        admins = [
            await Console(one, client, ready.user.email, ready.user.password).log_in()
            for one in (platform.base_url, url)
        ]
        yield Replicas(admins)
        for admin in admins:
            await admin.close()


@pytest.fixture
async def person(both: Replicas) -> AsyncIterator[Console]:
    """Return a user without roles."""
    person = await both.admins[0].person()
    yield person
    await person.close()


async def test_a_grant_is_seen_and_gone_at_once(
    both: Replicas, person: Console, application: Application
) -> None:
    """The next request after a grant shows the device, and hides it after its removal."""
    device = await application.add_device()
    path, grant = f"/device/{device.id}", {"resources": [{"id": device.id, "type": "DEVICE"}]}
    role = await both.admins[0].add_role("device.view", users=(person.id,))
    for maker, asked in both.turns():
        await maker.does("POST", f"/user/roles/{role}/associate-resource", grant)
        assert await both.statuses(asked, person.token, path) == {200}
        await maker.does("POST", f"/user/roles/{role}/disassociate-resource", grant)
        assert await both.statuses(asked, person.token, path) == {403}


async def test_a_role_is_gone_at_once(both: Replicas, person: Console) -> None:
    """A user who loses a role loses its rights."""
    role = await both.admins[0].add_role("dashboard.view")
    for maker, asked in both.turns():
        for verb, status in (("associate", 200), ("disassociate", 403)):
            body = {"user_ids": [person.id]}
            await maker.does("POST", f"/user/roles/{role}/{verb}-user", body)
            found = await both.statuses(asked, person.token, "/dashboard/dashboards")
            assert found == {status}


async def test_menus_of_a_role_hold_at_once(both: Replicas, person: Console) -> None:
    """Functions that a role gains or loses hold for the next request."""
    role = await both.admins[0].add_role(users=(person.id,))
    for maker, asked in both.turns():
        for codes, status in ((("dashboard.view",), 200), (("dashboard.add",), 403)):
            await maker.set_menus(role, *codes)
            found = await both.statuses(asked, person.token, "/dashboard/dashboards")
            assert found == {status}


async def test_a_super_admin_is_one_no_longer_at_once(both: Replicas, person: Console) -> None:
    """A user without the role `super_admin` administrates nothing."""
    boss = both.admins[0]
    role = (await boss.done("GET", "/user"))["roles"][0]["role_id"]
    for maker, asked in both.turns():
        for verb, status in (("associate", 200), ("disassociate", 403)):
            body = {"user_ids": [person.id]}
            await maker.does("POST", f"/user/roles/{role}/{verb}-user", body)
            found = await both.statuses(asked, person.token, f"/user/roles/{role}/menus")
            assert found == {status}


async def test_tokens_end_at_once(both: Replicas) -> None:
    """A reset password, a disabled account and a deleted user end all tokens."""
    for maker, asked in both.turns():
        person = await maker.person()
        path = f"/user/members/{person.id}"
        for method, what, body in (
            ("PUT", f"{path}/change-password", {"password": PASSWORD}),
            ("PUT", f"{path}/status", {"enabled": False}),
            ("DELETE", path, None),
        ):
            assert await both.statuses(asked, person.token, "/user") == {200}
            assert (await maker.ask(method, what, body)).status_code == 200
            assert await both.statuses(asked, person.token, "/user") == {401}
            if what.endswith("status"):
                await maker.ask(method, what, {"enabled": True})
            if method != "DELETE":
                await person.log_in()
        await person.close()


async def test_a_regenerated_secret_ends_tokens_at_once(both: Replicas) -> None:
    """The old secret of an application and its tokens are refused everywhere."""
    boss = both.admins[0]
    made = await boss.done("POST", "/application", {"name": new_name()})
    devices = "/device/openapi/v1/devices/1"
    for maker, asked in both.turns():
        token = await _token(asked, made)
        assert await both.statuses(asked, token, devices) == {404}
        old = made
        path = f"/application/{made['application_id']}/secret"
        made = await maker.done("POST", path, {})
        assert await both.statuses(asked, token, devices) == {401}
        assert await _token(asked, old) == ""
    await boss.ask("DELETE", f"/application/{made['application_id']}")


async def test_an_allow_list_holds_at_once(both: Replicas) -> None:
    """An application from another network is refused everywhere, also with new tokens."""
    boss = both.admins[0]
    made = await boss.done("POST", "/application", {"name": new_name()})
    path = f"/application/{made['application_id']}/allowed-addresses"
    devices = "/device/openapi/v1/devices/1"
    for maker, asked in both.turns():
        token = await _token(asked, made)
        assert await both.statuses(asked, token, devices) == {404}
        await maker.done("PUT", path, {"allowed_addresses": ["192.0.2.0/24"]})
        assert not await both.statuses(asked, token, devices) & {200, 404}
        await maker.done("PUT", path, {"allowed_addresses": []})
    await boss.ask("DELETE", f"/application/{made['application_id']}")


async def _token(console: Console, application: dict[str, Any]) -> str:
    """Return a token of an application; empty when its secret is wrong."""
    form = {
        "grant_type": "client_credentials",
        "client_id": application["client_id"],
        "client_secret": application["client_secret"],
    }
    answer = await console.http.post("/oauth/token", data=form)
    return str(answer.json()["data"]["access_token"]) if answer.status_code == 200 else ""


async def test_a_socket_on_either_sees_every_change_once(
    both: Replicas, application: Application
) -> None:
    """Both replicas push each MQTT report exactly once to every socket."""
    device = await application.add_device()
    keys = [f"direct.device.{device.sn}.{name}" for name in ("counter", "led")]
    async with contextlib.AsyncExitStack() as stack:
        sockets = [
            await stack.enter_async_context(opened(admin)) for admin in both.admins for _ in "ab"
        ]
        for socket in sockets:
            await socket.subscribe(*keys)
        mqtt = await stack.enter_async_context(device.mqtt())
        for at in range(REPORTS):
            await mqtt.report({"counter": at, "led": at % 2 == 0})
        for socket in sockets:
            told = [await socket.told() for _ in range(REPORTS)]
            assert sorted(told, key=lambda one: one[keys[0]]) == [
                {keys[0]: at, keys[1]: at % 2 == 0} for at in range(REPORTS)
            ]
        for socket in sockets:  # and nothing comes twice
            await socket.beats()


async def test_a_change_on_one_is_pushed_and_returned_by_the_other(both: Replicas) -> None:
    """Both replicas push and return the new value of a custom entity at once."""
    made = await both.admins[0].done("POST", "/entity", {
        "identifier": uuid4().hex, "name": "Level", "type": "PROPERTY", "access_mod": "RW",
        "value_type": "LONG", "value_attribute": {},
    })  # fmt: skip
    async with opened(both.admins[0]) as one, opened(both.admins[1]) as two:
        for socket in (one, two):
            await socket.subscribe(made["key"])
        for at, (maker, asked) in enumerate(both.turns()):
            body = {"exchange": {made["key"]: at}}
            console_accepted(await maker.ask("POST", "/entity/property/update", body), data=False)
            assert (await asked.done("GET", f"/entity/{made['id']}/status"))["value"] == at
            for socket in (one, two):
                assert await socket.told() == {made["key"]: at}


async def test_an_integration_is_there_for_both_at_once(both: Replicas, platform: Platform) -> None:
    """Announced once, it is listed and adds devices at either replica with the next request."""
    for at, (maker, asked) in enumerate(both.turns()):
        ping = Ping(f"ping-{uuid4().hex[:8]}")
        name = ping.manifest.id
        assert await both.statuses(asked, asked.token, f"/integration/{name}") == {404}
        async with hosted(platform, ping):
            for admin, host in ((asked, 1), (maker, 2)):
                listed = await admin.done("POST", "/integration/search", {"device_addable": True})
                assert name in {entry["id"] for entry in listed}
                params = {f"{name}.integration.add_device.ip": f"10.{at}.{host}.1"}
                body = {"name": "Host", "integration": name, "param_entities": params}
                console_accepted(await admin.ask("POST", "/device", body), data=False)
            detail = await asked.done("GET", f"/integration/{name}")
            assert detail["device_count"] == 2
