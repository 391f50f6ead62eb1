"""The sweep that applies revocations once more, with fakes."""

import pytest

from libs.common.identity import Kind
from services.auth.revocations.service import SETTLE, Revocation, Revoker
from tests.unit.auth.fakes import FakeTokens


class FakeIntents:
    """Revocations that were written long ago."""

    def __init__(self, *revocations: Revocation) -> None:
        self.written = dict(enumerate(revocations))

    async def older_than(self, seconds):
        assert seconds == SETTLE
        return list(self.written.items())

    async def remove(self, ids):
        for each in ids:
            del self.written[each]


class FakeCopies:
    """Copies that are dropped, or not."""

    def __init__(self, *, broken: bool = False) -> None:
        self.dropped: list[str] = []
        self.broken = broken

    async def drop(self, sn):
        if self.broken:
            raise ConnectionError
        self.dropped.append(sn)


async def test_what_was_intended_is_applied_and_forgotten():
    """Applications by generation, devices by their copy."""
    tokens, copies = FakeTokens(), FakeCopies()
    intents = FakeIntents(Revocation(Kind.APPLICATION, "7", 2), Revocation(Kind.DEVICE, "SN1"))

    settled = await Revoker(tokens, copies).settle(intents)

    assert (settled, intents.written) == (2, {})
    assert tokens.log == [("revoked", Kind.APPLICATION, "7", 2)]
    assert copies.dropped == ["SN1"]


async def test_what_cannot_be_applied_is_kept():
    """It is tried again by the next sweep."""
    intents = FakeIntents(Revocation(Kind.DEVICE, "SN1"))

    with pytest.raises(ConnectionError):
        await Revoker(FakeTokens(), FakeCopies(broken=True)).settle(intents)

    assert len(intents.written) == 1
