"""The console client and the first user, as the launcher keeps and makes them."""

from typing import Any

import pytest

from deploy.local import console
from deploy.local.admin import Refused
from deploy.local.errors import LauncherError
from deploy.local.state import State, User

GIVEN = {"THINGWAY_CONSOLE_CLIENT_ID": "iab", "THINGWAY_CONSOLE_CLIENT_SECRET": "milesight*iab"}


class Platform:
    """Answers of auth, in their order, and what it was asked."""

    def __init__(self, *answers: dict[str, str] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any] | None]] = []

    async def call(self, subject: str, body: dict[str, Any] | None = None) -> Any:
        self.asked.append((subject, body))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_client_is_made_once() -> None:
    """The second question gets the first answer, and the secret is long."""
    state = State()

    identity, secret = console.client(state)

    assert console.client(state) == (identity, secret)
    assert len(secret) >= 32


def test_the_client_of_the_environment_is_kept() -> None:
    """It replaces the one that was made, and holds when the environment names none."""
    state = State()
    console.client(state)

    console.adopt_client(state, GIVEN)
    console.adopt_client(state, {})

    assert console.client(state) == ("iab", "milesight*iab")


@pytest.mark.parametrize("variable", GIVEN)
def test_half_a_client_is_refused(variable: str) -> None:
    """The line names both variables."""
    with pytest.raises(LauncherError, match=r"CLIENT_ID and .*CLIENT_SECRET"):
        console.adopt_client(State(), {variable: "x"})


async def test_the_first_user_is_a_super_admin_of_the_default_tenant() -> None:
    """Auth makes its password."""
    platform = Platform({"email": "me@example.com", "password": "Passw0rd"})

    made = await console.create_user(platform, "me@example.com")

    assert made == User("me@example.com", "Passw0rd")
    assert platform.asked == [
        (
            "rpc.auth.create_user",
            {
                "tenant": "default",
                "email": "me@example.com",
                "nickname": "me",
                "superAdmin": True,
            },
        )
    ]


async def test_the_user_of_a_broken_off_start_is_taken_over() -> None:
    """Its password is not known, so it gets a new one."""
    known = Refused("409", "another user has this e-mail address")
    platform = Platform(known, {"email": "Me@example.com", "password": "Passw0rd"})

    made = await console.create_user(platform, "me@example.com")

    assert made == User("Me@example.com", "Passw0rd")
    assert platform.asked[1] == (
        "rpc.auth.reset_user_password",
        {"tenant": "default", "email": "me@example.com"},
    )


async def test_an_address_that_auth_refuses_ends_the_start() -> None:
    """With auth's own words."""
    platform = Platform(Refused("400", "email: must be an e-mail address"))

    with pytest.raises(Refused, match="must be an e-mail address"):
        await console.create_user(platform, "none")
