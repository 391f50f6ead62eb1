"""The sweep that applies revocations once more, with fakes."""

import pytest

from libs.common.errors import Unavailable
from libs.common.identity import PrincipalKind
from services.auth.revocations import REAPPLY_AFTER_SECONDS, Revocation, RevocationApplier
from tests.unit.auth.fakes import FakeTokens


class FakeIntents:
    """Revocations that were written long ago."""

    def __init__(self, *revocations: Revocation) -> None:
        self.written = dict(enumerate(revocations))
        self.postponed: set[int] = set()

    async def list_batch(self, seconds, tenant):
        assert (seconds, tenant) == (REAPPLY_AFTER_SECONDS, "t")
        return [item for item in self.written.items() if item[0] not in self.postponed]

    async def reset_age(self, identity):
        self.postponed.add(identity)

    async def remove(self, identity):
        del self.written[identity]


class FakeCopies:
    """Copies that are dropped, or not."""

    def __init__(self, *, broken: bool = False) -> None:
        self.dropped: list[str] = []
        self.broken = broken

    async def delete(self, sn):
        if self.broken:
            raise ConnectionError
        self.dropped.append(sn)


class FakeConnections:
    """Connections that end, unless the one who closes them is away for a user."""

    def __init__(self, *away: str) -> None:
        self.away = set(away)
        self.closed: list[tuple[str, bool]] = []

    async def close_revoked(self, user, *, ask_servers=False):
        if user in self.away:
            raise Unavailable("away")
        self.closed.append((user, ask_servers))


async def settle(revoker: RevocationApplier, intents: FakeIntents) -> int:
    """Apply old revocations again; return their number."""
    before = len(intents.written)
    async for _ in revoker.reapply_old(intents, "t"):
        pass
    return before - len(intents.written)


async def test_stored_revocations_are_applied_and_deleted():
    """Applications are revoked by generation, devices by their copy in Redis."""
    tokens, copies = FakeTokens(), FakeCopies()
    intents = FakeIntents(
        Revocation(PrincipalKind.APPLICATION, "7", 2), Revocation(PrincipalKind.DEVICE, "SN1")
    )

    settled = await settle(RevocationApplier(tokens, copies, FakeConnections()), intents)

    assert (settled, intents.written) == (2, {})
    assert tokens.log == [("revoked", PrincipalKind.APPLICATION, "7", 2)]
    assert copies.dropped == ["SN1"]


async def test_failed_revocations_are_kept():
    """The next sweep tries again."""
    intents = FakeIntents(Revocation(PrincipalKind.DEVICE, "SN1"))

    with pytest.raises(ConnectionError):
        await settle(
            RevocationApplier(FakeTokens(), FakeCopies(broken=True), FakeConnections()), intents
        )

    assert len(intents.written) == 1


async def test_connections_are_closed_at_once_and_looked_for_at_the_servers_later():
    """The one is quick, the other thorough."""
    connections = FakeConnections()
    revoker = RevocationApplier(FakeTokens(), FakeCopies(), connections)
    revocation = Revocation(PrincipalKind.DEVICE, "SN1", user="Sn1")

    await revoker.apply(revocation)
    other = Revocation(None, "x", user="integration.x")
    await settle(revoker, FakeIntents(revocation, other))

    assert connections.closed == [("Sn1", False), ("Sn1", True), ("integration.x", True)]


async def test_connections_that_cannot_be_closed_are_closed_later():
    """The credential is dead all the same, and others do not wait."""
    connections, copies = FakeConnections("A"), FakeCopies()
    revoker = RevocationApplier(FakeTokens(), copies, connections)
    intents = FakeIntents(*(Revocation(PrincipalKind.DEVICE, sn, user=sn) for sn in "AB"))

    await revoker.apply(intents.written[0])
    assert copies.dropped == ["A"]
    assert await settle(revoker, intents) == 1
    assert [one.user for one in intents.written.values()] == ["A"]
    connections.away.clear()
    intents.postponed.clear()
    assert await settle(revoker, intents) == 1
    assert intents.written == {}
