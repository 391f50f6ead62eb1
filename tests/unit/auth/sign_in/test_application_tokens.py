"""Both grants, with fakes for MongoDB and Redis."""

import pytest

from libs.common.errors import Forbidden, Unauthenticated
from libs.common.identity import Caller, Principal, PrincipalKind
from services.auth.sign_in.token_requests import (
    ApplicationRefreshGrant,
    ClientCredentialsGrant,
    RequestOrigin,
    TokenDetails,
)
from services.auth.sign_in.tokens import WRONG_CREDENTIALS_TEXT, ApplicationTokenService
from tests.unit.auth.fakes import (
    CLIENT_ID,
    REUSED,
    SECRET,
    STALE,
    FakeApplications,
    FakeTokens,
    application,
)

HOST = RequestOrigin("192.0.2.1", "r1")
RIGHT = ClientCredentialsGrant(CLIENT_ID, SECRET)
HOLDER = Principal(
    kind=PrincipalKind.APPLICATION, tenant="t1", subject="1000000", name="old name", family="f"
)


class FakeRefusals:
    """Notes refused log-ins."""

    def __init__(self, told: list | None) -> None:
        self._told = [] if told is None else told

    def enqueue(self, claimed: Caller, reason: str) -> None:
        self._told.append((claimed, reason))


def service(tokens: FakeTokens, *applications, told: list | None = None) -> ApplicationTokenService:
    return ApplicationTokenService(
        FakeApplications(*applications),
        tokens,
        FakeRefusals(told),
        access_life=60,
        refresh_life=90,
    )


async def test_tokens_are_issued_under_the_generation_that_was_checked():
    """The script can refuse them when the secret has changed since."""
    tokens = FakeTokens()

    details = await service(tokens, application()).issue_for_grant(RIGHT, HOST)

    assert details == TokenDetails("access", "refresh", 59, 89)
    assert tokens.asked == [(application().principal, 3)]


@pytest.mark.parametrize("credentials", [(CLIENT_ID, "wrong"), ("unknown", SECRET)])
async def test_wrong_credentials_have_one_answer_and_issue_nothing(credentials):
    """An unknown client has the same error as a wrong secret."""
    tokens = FakeTokens()

    with pytest.raises(Unauthenticated, match=WRONG_CREDENTIALS_TEXT):
        await service(tokens, application()).issue_for_grant(
            ClientCredentialsGrant(*credentials), HOST
        )

    assert tokens.asked == []


async def test_a_secret_that_is_regenerated_meanwhile_is_wrong():
    """The refusal of the script is a 401."""
    with pytest.raises(Unauthenticated):
        await service(FakeTokens(STALE), application()).issue_for_grant(RIGHT, HOST)


async def test_a_refresh_keeps_the_family_and_takes_the_newest_name():
    """The principal is built again from the application."""
    tokens = FakeTokens(holder=HOLDER)

    await service(tokens, application()).issue_for_grant(ApplicationRefreshGrant("r"), HOST)

    ((token, principal, generation),) = tokens.asked
    assert (token, principal.family, principal.name, generation) == ("r", "f", "first", 3)


@pytest.mark.parametrize(
    ("tokens", "known", "client_id"),
    [
        (FakeTokens(), [application()], None),
        (FakeTokens(holder=HOLDER), [], None),
        (FakeTokens(holder=HOLDER), [application()], "another"),
        (FakeTokens(REUSED, holder=HOLDER), [application()], None),
        (
            FakeTokens(holder=Principal(kind=PrincipalKind.USER, tenant="t1", subject="u")),
            [application()],
            None,
        ),
    ],
    ids=["unknown token", "deleted application", "foreign client id", "used twice", "a person's"],
)
async def test_a_refresh_token_that_is_not_valid_is_401(tokens, known, client_id):
    """All reasons have the same error."""
    with pytest.raises(Unauthenticated, match="refresh_token"):
        await service(tokens, *known).issue_for_grant(ApplicationRefreshGrant("r", client_id), HOST)


@pytest.mark.parametrize(
    "request_", [RIGHT, ApplicationRefreshGrant("r")], ids=["log-in", "refresh"]
)
async def test_an_application_gets_tokens_where_it_may_call_from(request_):
    """The allow-list goes into the token, for the gateway to hold at each request."""
    allowed = ("192.0.2.0/24", "2001:db8::/32")
    tokens = FakeTokens(holder=HOLDER)

    await service(tokens, application(allowed_addresses=allowed)).issue_for_grant(request_, HOST)

    assert tokens.asked[0][-2].networks == allowed


@pytest.mark.parametrize(
    "request_", [RIGHT, ApplicationRefreshGrant("r")], ids=["log-in", "refresh"]
)
@pytest.mark.parametrize("address", ["192.0.3.1", "2001:db9::1", "", "unknown"])
async def test_from_elsewhere_even_the_right_credentials_are_403(request_, address):
    """No token is issued or used up, and the rejection is audited."""
    tokens, told = FakeTokens(holder=HOLDER), []
    known = application(allowed_addresses=("192.0.2.0/24", "2001:db8::/32"))

    with pytest.raises(Forbidden):
        await service(tokens, known, told=told).issue_for_grant(
            request_, RequestOrigin(address, "r1")
        )

    assert tokens.asked == []
    assert told == [(Caller(known.principal, address, "r1"), "address")]


async def test_the_allowlist_error_needs_the_right_secret():
    """A wrong secret gets the same error from every address."""
    known, told = application(allowed_addresses=("192.0.2.0/24",)), []

    with pytest.raises(Unauthenticated):
        await service(FakeTokens(), known, told=told).issue_for_grant(
            ClientCredentialsGrant(CLIENT_ID, "wrong"), RequestOrigin("10.0.0.1")
        )

    assert told == []
