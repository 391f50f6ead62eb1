"""`thingway tenant`: a tenant is made, and its first user takes it over."""

from uuid import uuid4

import aiohttp
import pytest

from tests.e2e.platform import Platform, run_command

pytestmark = pytest.mark.xdist_group("platform")

PASSWORD = "Correct1horse"


async def test_a_tenant_begins_with_its_first_user(platform: Platform):
    """The first user is super-admin of the tenant only and sees nobody else's things."""
    name = f"t-{uuid4().hex[:8]}"
    made = platform.command("tenant", "create", name)
    user = {"email": "first@example.com", "nickname": "First", "password": PASSWORD}
    form = {
        "grant_type": "password",
        "username": user["email"],
        "password": user["password"],
        "client_id": made["clientId"],
        "client_secret": made["clientSecret"],
    }

    async with aiohttp.ClientSession(platform.base_url) as session:
        tenant = {"TENANT_ID": name}
        async with session.post("/user/register", json=user, headers=tenant) as answer:
            assert answer.status == 200, await answer.text()
        again = {**user, "email": "second@example.com"}
        async with session.post("/user/register", json=again, headers=tenant) as answer:
            assert answer.status == 403
        async with session.post("/oauth2/token", data=form) as answer:
            token = (await answer.json())["data"]["access_token"]
        bearer = {"Authorization": f"Bearer {token}"}
        async with session.get("/user", headers=bearer) as answer:
            me = (await answer.json())["data"]
        async with session.post("/user/members/search", json={}, headers=bearer) as answer:
            people = (await answer.json())["data"]

    assert me["is_super_admin"] is True
    assert [person["email"] for person in people] == ["first@example.com"]
    assert {"name": name, "users": 1} in [
        {"name": each["name"], "users": each["users"]}
        for each in platform.command("tenant", "list")
    ]


async def test_a_duplicate_or_invalid_name_is_an_error(platform: Platform):
    """The command prints one line and has an exit code."""
    for name in ("default", "a b"):
        done = run_command("tenant", "create", name, "--data", platform.directory)
        assert done.returncode == 1
        assert "name" in done.stderr or "default" in done.stderr
        assert len(done.stderr.splitlines()) == 1


async def test_limits_of_a_tenant_are_shown_and_changed(platform: Platform):
    """As JSON and as text; an unknown tenant is an error."""
    name = f"t-{uuid4().hex[:8]}"
    platform.command("tenant", "create", name)
    shown = platform.command("tenant", "limits", name)
    changed = platform.command("tenant", "limits", name, "each_requests=50")
    printed = run_command("tenant", "limits", name, "--data", platform.directory)
    again = platform.command("tenant", "limits", name, "eachRequests=default")

    assert shown["own"] == again["own"] == {}
    assert changed["own"] == {"eachRequests": 50}
    assert changed["limits"] == shown["limits"] | {"eachRequests": 50}
    assert any(
        line.split() == ["eachRequests", "50", "custom"] for line in printed.stdout.splitlines()
    )
    unknown = run_command("tenant", "limits", "t-nobody", "--data", platform.directory)
    assert (unknown.returncode, "t-nobody" in unknown.stderr) == (1, True)


async def test_the_output_explains_the_next_steps(platform: Platform):
    """The output has the client with its secret, and how the first user registers."""
    name = f"t-{uuid4().hex[:8]}"
    data = ("--data", platform.directory)
    printed = run_command("tenant", "create", name, *data).stdout

    assert "client secret" in printed
    assert f"TENANT_ID: {name}" in printed
    assert f"{platform.base_url}/user/register" in printed
    assert name in run_command("tenant", "list", *data).stdout
