"""A person at the console of the whole platform, through the gateway."""

import subprocess
from collections.abc import AsyncIterator

import pytest

from tests.e2e.callers import Console
from tests.e2e.platform import THINGWAY, Platform


@pytest.fixture
async def somebody(console: Console) -> AsyncIterator[Console]:
    """A user without roles."""
    made = await console.add_user()
    yield made
    await made.close()


async def test_the_first_user_signs_in_with_what_ready_json_says(console: Console):
    """It is the super-admin of the default tenant, below both prefixes."""
    profile = await console.data("GET", "/user")

    assert (profile["tenant_id"], profile["is_super_admin"]) == ("default", True)
    assert profile["email"] == console.email
    assert await console.data("GET", "/api/v1/user/status") == {"init": True}


async def test_registration_is_closed_since_there_is_a_user(console: Console):
    """403, and nobody was added."""
    fields = {"email": "me@example.com", "nickname": "Me", "password": "Passw0rd"}

    status, content = await console.request("POST", "/user/register", fields)

    assert (status, content["error_code"]) == (403, "forbidden_permission")


async def test_a_disabled_user_is_out_at_the_next_request(console: Console, somebody: Console):
    """Its token is dead, and there is no new one until it is enabled again."""
    user_id = await somebody.id()

    await console.data("PUT", f"/user/members/{user_id}/status", {"enabled": False})
    status, content = await somebody.request("GET", "/user")
    await console.data("PUT", f"/user/members/{user_id}/status", {"enabled": True})

    assert (status, content["error_code"]) == (401, "authentication_failed")
    assert await somebody.id() == user_id


async def test_the_operator_gives_a_user_a_new_password(
    platform: Platform, console: Console, somebody: Console
):
    """The printed one opens; the old one and its tokens are dead."""
    await somebody.sign_in()

    made = platform.command("user", "reset-password", somebody.email)

    assert (await somebody.request("GET", "/user"))[0] == 401
    assert made["password"] != somebody.password
    somebody.password = made["password"]
    assert await somebody.id()


def test_an_unknown_user_is_one_line_and_exit_code_1(platform: Platform):
    """The line names the address."""
    done = subprocess.run(
        [THINGWAY, "user", "reset-password", "x@example.com", "--data", platform.directory],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 1
    assert done.stderr.splitlines() == ["thingway: email: there is no user x@example.com"]
