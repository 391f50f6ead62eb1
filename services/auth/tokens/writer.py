"""Issues, rotates and revokes tokens in Redis.

Issuing cannot race with revocation: every subject has a **generation**, kept in MongoDB and raised
with every new secret; the scripts refuse to issue under a generation lower than the highest one
Redis has seen, and drop all older tokens as soon as they see a higher one. A used refresh token
is remembered until it would have expired; its second use revokes its family.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec
from redis.commands.core import AsyncScript

from libs.common.identity import Kind, Principal
from libs.common.identity.tokens import refresh_key, token_key
from libs.common.store.redis import Redis

MAX_FAMILIES = 10_000
"""Most families of one subject: a client that logs in for every request costs about 10 MB.
Beyond it the family that would expire first is revoked."""
MAX_PAGES = 100
"""Most pages of one log-in that hear live updates; of more the oldest hears no more."""
MARGIN = 60
"""Seconds that a generation is kept beyond the last token of its subject."""

_LUA = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class TokenPair:
    """What a log-in or a refresh gives, shown only here."""

    access: str
    refresh: str


class Refusal(StrEnum):
    """Why there are no tokens."""

    STALE = "STALE"
    """The secret was regenerated, or the application deleted, in the meantime."""
    UNKNOWN = "UNKNOWN"
    """No such refresh token, or no longer."""
    REUSED = "REUSED"
    """The refresh token had been used before; its family is revoked now."""


class TokenWriter:
    """Issues, rotates and revokes; only `auth` has one. Lives are in seconds."""

    def __init__(self, redis: Redis, *, access_life: int, refresh_life: int) -> None:
        self._redis = redis
        self._keep_ms = (max(access_life, refresh_life) + MARGIN) * 1000
        self._lives_ms = (access_life * 1000, refresh_life * 1000)
        self._issue = self._script("issue.lua")
        self._rotate = self._script("rotate.lua")
        self._revoke_subject = self._script("revoke_subject.lua")
        self._page = self._script("page.lua")

    async def issue(self, principal: Principal, generation: int) -> TokenPair | Refusal:
        """Start a family for `principal`, whose secret was checked at `generation`."""
        family = secrets.token_hex(16)
        return await self._store(self._issue, principal, family, generation)

    async def holder(self, refresh_token: str) -> Principal | None:
        """Whose refresh token this is, be it used or not; None when it is unknown."""
        raw = await self._redis.hget(refresh_key(refresh_token), "principal")
        return None if raw is None else msgspec.json.decode(raw, type=Principal)

    async def rotate(
        self, refresh_token: str, principal: Principal, generation: int
    ) -> TokenPair | Refusal:
        """Use `refresh_token` up and issue the next pair of its family, `principal.family`."""
        used = [refresh_key(refresh_token)]
        return await self._store(self._rotate, principal, principal.family, generation, used)

    async def revoke_subject(self, kind: Kind, subject: str, generation: int) -> None:
        """Revoke all tokens of a subject that are older than `generation`; repeatable."""
        keys = _subject_keys(kind, subject)
        await self._revoke_subject(keys=keys, args=[generation, self._keep_ms])

    async def add_page(self, principal: Principal, key: str) -> bool:
        """Keep a page's credential under `key` while its log-in lasts; False when it has ended.

        What a user may do is not kept with it: that is asked for when it is used.
        """
        plain = msgspec.structs.replace(
            principal, functions=frozenset(), super_admin=False, access=0
        )
        family = principal.family
        keys = [f"tw:family:{family}", f"tw:pages:{family}", key]
        return bool(await self._page(keys=keys, args=[msgspec.json.encode(plain), MAX_PAGES]))

    async def _store(
        self,
        script: AsyncScript,
        principal: Principal,
        family: str,
        generation: int,
        more_keys: Sequence[str] = (),
    ) -> TokenPair | Refusal:
        pair = TokenPair(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        stored = msgspec.structs.replace(principal, family=family)
        outcome: bytes = await script(
            keys=[
                *_subject_keys(principal.kind, principal.subject),
                token_key(pair.access),
                refresh_key(pair.refresh),
                *more_keys,
            ],
            args=[
                generation,
                msgspec.json.encode(stored),
                family,
                *self._lives_ms,
                MAX_FAMILIES,
                self._keep_ms,
            ],
        )
        return pair if outcome == b"OK" else Refusal(outcome.decode())

    def _script(self, name: str) -> AsyncScript:
        text = (_LUA / "common.lua").read_text() + (_LUA / name).read_text()
        return self._redis.register_script(text)


def _subject_keys(kind: Kind, subject: str) -> list[str]:
    """Where a subject's generation and families stand; kinds have ids of their own."""
    return [f"tw:generation:{kind}:{subject}", f"tw:families:{kind}:{subject}"]
