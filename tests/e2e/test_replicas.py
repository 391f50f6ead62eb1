"""Two replicas of every service: what is taken away is gone with the next request on each."""

import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from deploy.local import ports, services
from deploy.local.process import PROJECT_ROOT, base_environment
from deploy.local.services import Doors, environment
from tests.contract.console import PASSWORD, Console, new_name
from tests.e2e.platform import Application, Platform, until

TURNS = 6
"""How often each change is made and taken back, by either replica in turn."""


@contextlib.asynccontextmanager
async def replicas(platform: Platform) -> AsyncIterator[str]:
    """Start a second process of every service that users reach; give the second gateway's URL."""
    state, served = platform.state, [one for one in services.SERVICES if one.upstream]
    gateway = next(one for one in services.SERVICES if one.name == services.PUBLIC_SERVICE)
    assert state.addresses is not None
    chosen: list[int] = []
    for _ in (*served, gateway):
        chosen.append(ports.choose_free(chosen))
    doors = Doors("127.0.0.1", chosen.pop(), platform.base_url, state.addresses.nats_url)
    state.ports |= {one.name: port for one, port in zip(served, chosen, strict=True)}
    with contextlib.ExitStack() as cleanup:
        output = cleanup.enter_context((platform.directory.parent / "replicas.log").open("ab"))
        for service in (*served, gateway):
            child = subprocess.Popen(
                [sys.executable, "-m", service.module],
                cwd=PROJECT_ROOT,
                env=base_environment(os.environ) | environment(service, state, doors),
                stdout=output,
                stderr=output,
            )
            cleanup.callback(child.wait)
            cleanup.callback(child.terminate)
        url = f"http://127.0.0.1:{doors.port}"
        await until(lambda: _ready(url))
        yield url


async def _ready(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        async with httpx.AsyncClient() as http:
            return (await http.get(f"{url}/readyz")).status_code == 200
    return False


class Replicas:
    """The super-admin at the platform's gateway and at the second one."""

    def __init__(self, admins: list[Console]) -> None:
        self.admins = admins

    def turns(self) -> list[tuple[Console, Console]]:
        """Who makes a change and who is asked first about it."""
        first, second = self.admins
        return [(first, second), (second, first)] * (TURNS // 2)

    async def statuses(self, asked: Console, token: str, path: str) -> set[int]:
        """What a GET answers, at the replica that did not make the change and then at the other."""
        order = sorted(self.admins, key=lambda admin: admin is not asked)
        return {(await admin.ask("GET", path, token=token)).status_code for admin in order}


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
    """A user without roles."""
    person = await both.admins[0].person()
    yield person
    await person.close()


async def test_a_grant_is_seen_and_gone_at_once(
    both: Replicas, person: Console, application: Application
) -> None:
    """A device is visible with the request after its grant, and hidden with the one after."""
    device = await application.add_device()
    path, grant = f"/device/{device.id}", {"resources": [{"id": device.id, "type": "DEVICE"}]}
    role = await both.admins[0].add_role("device.view", users=(person.id,))
    for maker, asked in both.turns():
        await maker.does("POST", f"/user/roles/{role}/associate-resource", grant)
        assert await both.statuses(asked, person.token, path) == {200}
        await maker.does("POST", f"/user/roles/{role}/disassociate-resource", grant)
        assert await both.statuses(asked, person.token, path) == {403}


async def test_a_role_is_gone_at_once(both: Replicas, person: Console) -> None:
    """A user who loses a role loses what it lets them do."""
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
    """Who loses the role `super_admin` administrates nothing from then on."""
    boss = both.admins[0]
    role = (await boss.done("GET", "/user"))["roles"][0]["role_id"]
    for maker, asked in both.turns():
        for verb, status in (("associate", 200), ("disassociate", 403)):
            body = {"user_ids": [person.id]}
            await maker.does("POST", f"/user/roles/{role}/{verb}-user", body)
            found = await both.statuses(asked, person.token, f"/user/roles/{role}/menus")
            assert found == {status}


async def test_tokens_end_at_once(both: Replicas) -> None:
    """A reset password, a disabled account and a deleted user end the user's tokens everywhere."""
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
    """The tokens of an application's old secret are refused everywhere, and so is the secret."""
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
    """An application whose networks are elsewhere is refused everywhere, new tokens or old."""
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
    """A token of an application, empty when its secret is wrong."""
    form = {
        "grant_type": "client_credentials",
        "client_id": application["client_id"],
        "client_secret": application["client_secret"],
    }
    answer = await console.http.post("/oauth/token", data=form)
    return str(answer.json()["data"]["access_token"]) if answer.status_code == 200 else ""
