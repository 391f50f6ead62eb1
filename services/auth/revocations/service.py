"""Applies revocations to Redis: at once, and once more by the sweep.

The intent is written in the transaction that makes it true in MongoDB. `apply` runs
before the caller is answered; the sweep repeats it `SETTLE` seconds later, and so makes
good what a crash left out, and what Redis lost of its last second (`appendfsync
everysec`). Applying twice changes nothing: a generation is reached only once, and a
device's copy is restored by its next log-in.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from libs.common.identity import Kind

log = logging.getLogger(__name__)

SETTLE = 2.0
"""Seconds after which a revocation is applied again; more than Redis may lose."""


@dataclass(frozen=True, slots=True)
class Revocation:
    """Everything older than `generation` of an application, or the key of a device."""

    kind: Kind
    subject: str
    generation: int = 0


class Tokens(Protocol):
    """The token state, as far as it is needed here."""

    async def revoke_subject(self, kind: Kind, subject: str, generation: int) -> None:
        """Revoke all tokens of a subject that are older than `generation`."""


class Copies(Protocol):
    """The device keys in Redis, as far as they are needed here."""

    async def drop(self, sn: str) -> None:
        """Forget the copy of a device's credentials."""


class Intents(Protocol):
    """The revocations that were written."""

    async def older_than(self, seconds: float) -> Sequence[tuple[object, Revocation]]:
        """Revocations of that age with the ids they are removed by."""

    async def remove(self, ids: Sequence[object]) -> None:
        """Forget revocations that are true for good."""


class Revoker:
    """Makes revocations true in Redis."""

    def __init__(self, tokens: Tokens, copies: Copies) -> None:
        self._tokens = tokens
        self._copies = copies

    async def apply(self, revocation: Revocation) -> None:
        """Apply one revocation; when this returns, the next look-up sees it."""
        if revocation.kind is Kind.DEVICE:
            await self._copies.drop(revocation.subject)
        else:
            await self._tokens.revoke_subject(
                revocation.kind, revocation.subject, revocation.generation
            )

    async def settle(self, intents: Intents) -> int:
        """Apply once more what is old enough, forget it, and return how many there were."""
        due = await intents.older_than(SETTLE)
        for _, revocation in due:
            await self.apply(revocation)
        await intents.remove([identity for identity, _ in due])
        return len(due)

    async def sweep(self, intents: Intents) -> None:
        """Settle for ever; run by the lease holder."""
        while True:
            try:
                await self.settle(intents)
            except Exception:
                log.exception("revocations could not be settled; they are tried again")
            await asyncio.sleep(SETTLE)
