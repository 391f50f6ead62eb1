"""The console client and the first user."""

from typing import Any

import pytest

from deploy.platform import console
from deploy.platform.errors import LauncherError
from deploy.platform.state import FirstUser, State
from libs.common.contracts.auth import CreateUser, UserPassword, UserRefByEmail
from libs.common.errors import Conflict, InvalidInput

GIVEN = {"THINGWAY_CONSOLE_CLIENT_ID": "iab", "THINGWAY_CONSOLE_CLIENT_SECRET": "milesight*iab"}


class Platform:
    """A fake of auth with prepared replies, which records its calls."""

    def __init__(self, *answers: UserPassword | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Any]] = []

    async def call(self, subject: str, request: Any, answer: type) -> Any:
        self.asked.append((subject, request))
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def test_the_client_is_created_once() -> None:
    """The second call returns the same client, with a long secret."""
    state = State()

    identity, secret = console.console_client(state)

    assert console.console_client(state) == (identity, secret)
    assert len(secret) >= 32


def test_the_client_of_the_environment_is_kept() -> None:
    """It replaces the generated client, and stays when the environment has none."""
    state = State()
    console.console_client(state)

    console.adopt_console_client(state, GIVEN)
    console.adopt_console_client(state, {})

    assert console.console_client(state) == ("iab", "milesight*iab")


@pytest.mark.parametrize("variable", GIVEN)
def test_half_a_client_is_rejected(variable: str) -> None:
    """The message names both variables."""
    with pytest.raises(LauncherError, match=r"CLIENT_ID and .*CLIENT_SECRET"):
        console.adopt_console_client(State(), {variable: "x"})


async def test_the_first_user_is_a_super_admin_of_the_default_tenant() -> None:
    """Auth generates its password."""
    platform = Platform(UserPassword(1, "me@example.com", "Passw0rd"))

    made = await console.create_first_user(platform, "me@example.com")

    assert made == FirstUser("me@example.com", "Passw0rd")
    assert platform.asked == [
        ("rpc.auth.create_user", CreateUser("me@example.com", "me", "default", super_admin=True))
    ]


async def test_the_user_of_an_interrupted_start_is_adopted() -> None:
    """Its password is unknown, so it gets a new one."""
    known = Conflict("another user has this email address")
    platform = Platform(known, UserPassword(1, "Me@example.com", "Passw0rd"))

    made = await console.create_first_user(platform, "me@example.com")

    assert made == FirstUser("Me@example.com", "Passw0rd")
    assert platform.asked[1] == (
        "rpc.auth.reset_user_password",
        UserRefByEmail("me@example.com", "default"),
    )


async def test_a_rejected_email_address_stops_the_start() -> None:
    """The error of auth is raised."""
    platform = Platform(InvalidInput("must be an email address", field="email"))

    with pytest.raises(InvalidInput, match="must be an email address"):
        await console.create_first_user(platform, "none")
