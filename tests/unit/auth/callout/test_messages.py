"""Whose log-in to the bus is checked next, with fakes."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from libs.common.bus.nkeys import KeyKind, KeyPair
from services.auth.callout import service
from services.auth.callout.permissions import Admission, Permissions
from services.auth.callout.service import MAX_CONCURRENT_LOGINS, Callout

ISSUER = KeyPair.create(KeyKind.ACCOUNT)


class Redis:
    """Knows the tenants of users that have logged in before."""

    def __init__(self, **tenants: str) -> None:
        self.tenants = tenants

    async def get(self, key: str) -> bytes | None:
        user = key.rpartition(":")[2]
        return self.tenants[user].encode() if user in self.tenants else None


class LoginAuthorizer:
    """Admits everybody; the log-ins of LOUD devices take until they are let go."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.begun: list[str] = []

    async def admit(self, user: str, *_: Any) -> Admission:
        self.begun.append(user)
        if user.startswith("LOUD"):
            await self.go_on.wait()
        return Admission(user, Permissions([], []), "c", user[:4].lower())


class Message:
    """A request of a user, and whether it was answered."""

    answers: list[str]

    def __init__(self, user: str, answers: list[str]) -> None:
        self.data, self.user, self.answers = b"x" * 100, user, answers

    async def respond(self, _: bytes) -> None:
        self.answers.append(self.user)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests without signatures: the user name alone."""

    def build_response(request: Any, *_: Any, **__: Any) -> bytes:
        return b"accepted"

    for name in ("build_user_jwt", "build_acceptance", "build_rejection"):
        monkeypatch.setattr(service, name, build_response)


async def come(callout: Callout, *users: str, answers: list[str]) -> None:
    """Let users log in, one after the other."""
    for user in users:
        request = SimpleNamespace(
            connect_opts=SimpleNamespace(user=user, password="k"),
            client_info=SimpleNamespace(host="192.0.2.1", id=user, type="mqtt", mqtt_id=user),
            server_id=SimpleNamespace(id="server"),
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(service, "decode_request", lambda _, request=request: request)
            await callout._handle(cast("Any", Message(user, answers)))
    for _ in range(200):
        await asyncio.sleep(0)


def callout_of(authorizer: LoginAuthorizer, redis: Redis) -> Callout:
    tenants = service.UserTenants(cast("Any", redis))
    return Callout(cast("Any", None), cast("Any", authorizer), ISSUER, tenants)


async def test_log_ins_that_take_long_delay_no_other_tenant():
    """A device whose tenant is known from an earlier log-in does not wait for a crowd."""
    crowd = [f"LOUD{number}" for number in range(MAX_CONCURRENT_LOGINS * 3)]
    authorizer, answers = LoginAuthorizer(), list[str]()
    callout = callout_of(authorizer, Redis(**dict.fromkeys(crowd, "loud"), CALM1="calm"))
    await come(callout, *crowd, answers=answers)
    assert len(authorizer.begun) == MAX_CONCURRENT_LOGINS // 2
    await come(callout, "CALM1", answers=answers)
    assert answers == ["CALM1"]
    authorizer.go_on.set()
    await come(callout, answers=answers)
    assert sorted(answers) == sorted([*crowd, "CALM1"])


async def test_names_that_never_logged_in_share_a_lane():
    """Many unknown names delay no known device."""
    crowd = [f"LOUD{number}" for number in range(MAX_CONCURRENT_LOGINS)]
    authorizer, answers = LoginAuthorizer(), list[str]()
    callout = callout_of(authorizer, Redis(CALM1="calm"))
    await come(callout, "CALM2", *crowd, answers=answers)
    assert len(authorizer.begun) == 1 + MAX_CONCURRENT_LOGINS // 2
    await come(callout, "CALM1", "CALM2", answers=answers)
    assert sorted(answers) == ["CALM1", "CALM2", "CALM2"]
    authorizer.go_on.set()
    await come(callout, answers=answers)


async def test_log_ins_beyond_the_lane_are_refused(monkeypatch: pytest.MonkeyPatch):
    """Those of another tenant are not."""
    monkeypatch.setattr(service, "MAX_WAITING_LOGINS_PER_TENANT", 2)
    monkeypatch.setattr(service, "REJECTION_DELAY_SECONDS", 0)
    crowd = [f"LOUD{number}" for number in range(MAX_CONCURRENT_LOGINS)]
    authorizer, answers = LoginAuthorizer(), list[str]()
    callout = callout_of(authorizer, Redis(**dict.fromkeys(crowd, "loud"), CALM1="calm"))
    for user in crowd:
        await come(callout, user, answers=answers)
    assert len(answers) == MAX_CONCURRENT_LOGINS - MAX_CONCURRENT_LOGINS // 2 - 2
    await come(callout, "CALM1", answers=answers)
    assert answers[-1] == "CALM1"
    authorizer.go_on.set()
    await come(callout, answers=answers)
