"""Both grants, with fakes for MongoDB and Redis."""

import pytest

from libs.common.errors import Unauthenticated
from libs.common.identity import Kind, Principal
from services.auth.tokens.schemas import ClientCredentials, RefreshToken, TokenDetails
from services.auth.tokens.service import WRONG_CREDENTIALS, TokenService
from tests.unit.auth.fakes import (
    CLIENT_ID,
    REUSED,
    SECRET,
    STALE,
    FakeApplications,
    FakeTokens,
    application,
)

HOLDER = Principal(
    kind=Kind.APPLICATION, tenant="t1", subject="1000000", name="old name", family="f"
)


def service(tokens: FakeTokens, *applications) -> TokenService:
    return TokenService(FakeApplications(*applications), tokens, access_life=60, refresh_life=90)


async def test_tokens_are_issued_under_the_generation_that_was_checked():
    """The script can refuse them when the secret has changed since."""
    tokens = FakeTokens()

    details = await service(tokens, application()).grant(ClientCredentials(CLIENT_ID, SECRET))

    assert details == TokenDetails("access", "refresh", 59, 89)
    assert tokens.asked == [(application().principal, 3)]


@pytest.mark.parametrize("credentials", [(CLIENT_ID, "wrong"), ("unknown", SECRET)])
async def test_wrong_credentials_have_one_answer_and_issue_nothing(credentials):
    """An unknown client is not told from a wrong secret."""
    tokens = FakeTokens()

    with pytest.raises(Unauthenticated, match=WRONG_CREDENTIALS):
        await service(tokens, application()).grant(ClientCredentials(*credentials))

    assert tokens.asked == []


async def test_a_secret_that_is_regenerated_meanwhile_is_wrong():
    """The refusal of the script is a 401."""
    with pytest.raises(Unauthenticated):
        await service(FakeTokens(STALE), application()).grant(ClientCredentials(CLIENT_ID, SECRET))


async def test_a_refresh_keeps_the_family_and_takes_the_newest_name():
    """The principal is made anew from the application."""
    tokens = FakeTokens(holder=HOLDER)

    await service(tokens, application()).grant(RefreshToken("r"))

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
            FakeTokens(holder=Principal(kind=Kind.USER, tenant="t1", subject="u")),
            [application()],
            None,
        ),
    ],
    ids=["unknown token", "deleted application", "foreign client id", "used twice", "a person's"],
)
async def test_a_refresh_token_that_is_not_valid_is_401(tokens, known, client_id):
    """Whatever the reason, the answer is one."""
    with pytest.raises(Unauthenticated, match="refresh_token"):
        await service(tokens, *known).grant(RefreshToken("r", client_id))
