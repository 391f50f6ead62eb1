"""Operations on applications, with fakes."""

import pytest

from libs.common.contracts.auth import ApplicationRef, CreateApplication
from libs.common.errors import InvalidInput, NotFound
from libs.common.identity import Kind
from services.auth.applications.service import ApplicationService
from services.auth.revocations.service import Revoker
from services.auth.secret_hash import secret_matches
from tests.unit.auth.fakes import CLIENT_ID, FakeApplications, FakeTokens, application

REFERENCE = ApplicationRef(1_000_000, "t1")
REVOKED = ("revoked", Kind.APPLICATION, "1000000", 4)


class Platform:
    """The service and a log of what it did."""

    def __init__(self, *applications) -> None:
        self.log: list = []
        self.store = FakeApplications(*applications, log=self.log)
        revoker = Revoker(FakeTokens(log=self.log), None)
        self.service = ApplicationService(self.store, revoker, self.next_id, self.disconnect)

    async def next_id(self) -> int:
        return 5

    async def disconnect(self, user: str) -> None:
        self.log.append(("disconnected", user))


async def test_a_new_application_logs_in_with_the_secret_that_is_shown():
    """Only its hash is stored; the name is trimmed."""
    platform = Platform()

    shown = await platform.service.create(CreateApplication(name=" meter "))

    stored = platform.store.known[5]
    assert (shown.application_id, shown.name, stored.generation) == (5, "meter", 1)
    assert secret_matches(shown.client_secret, stored.secret_hash)
    assert shown.client_secret not in repr(stored)


@pytest.mark.parametrize("operation", ["rotate", "delete"])
async def test_tokens_die_after_the_store_knows_and_before_the_answer(operation):
    """MongoDB first, then Redis, then the event and the live connections."""
    platform = Platform(application())

    await getattr(platform.service, operation)(REFERENCE)

    assert platform.log == ["stored", REVOKED, "told", ("disconnected", CLIENT_ID)]


async def test_an_application_without_events_has_no_connections_to_close():
    """It could never connect to the bus."""
    platform = Platform(application(events=False))

    await platform.service.rotate(REFERENCE)

    assert platform.log == ["stored", REVOKED, "told"]


@pytest.mark.parametrize("operation", ["get", "rotate", "delete"])
async def test_an_unknown_application_is_404(operation):
    """So is one of another tenant."""
    platform = Platform(application())

    with pytest.raises(NotFound):
        await getattr(platform.service, operation)(ApplicationRef(1_000_000, "t2"))

    assert platform.log == []


@pytest.mark.parametrize("name", ["", "  ", "x" * 65, "a\nb"])
async def test_a_bad_name_is_refused(name):
    """Blank, overlong, or with control characters."""
    with pytest.raises(InvalidInput) as caught:
        await Platform().service.create(CreateApplication(name=name))

    assert caught.value.field == "name"
