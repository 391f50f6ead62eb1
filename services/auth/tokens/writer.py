"""Issues, rotates and revokes tokens in Redis.

Issuing cannot race with revocation: every subject has a **generation**, kept in MongoDB and raised
with every new secret; the scripts refuse to issue under a generation lower than the highest one
Redis has seen, and drop all older tokens as soon as they see a higher one. A used refresh token
is remembered until it would have expired; its second use revokes its family.

A writer with a grace period answers a second use within it with the pair of the first use, for
clients that send a refresh twice. Redis keeps that pair encrypted under a key that only the used
token yields, and forgets it with the family.
"""

import base64
import secrets
import time
from enum import StrEnum
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from redis.commands.core import AsyncScript

from libs.common.identity import Kind, Principal
from libs.common.identity.seal import Seal
from libs.common.identity.tokens import refresh_key, token_hash, token_key
from libs.common.store.redis import Redis

MAX_FAMILIES = 10_000
"""Most families of one subject: a client that logs in for every request costs about 10 MB.
Beyond it the family that would expire first is revoked."""
MAX_PAGES = 100
"""Most pages of one log-in that hear live updates; of more the oldest hears no more."""
MAX_LISTED = 100
"""Most log-ins of a person that are listed."""
MARGIN = 60
"""Seconds that a generation is kept beyond the last token of its subject."""

_LUA = Path(__file__).parent


class TokenPair(msgspec.Struct, frozen=True):
    """What a log-in or a refresh gives, shown only here."""

    access: str
    refresh: str
    issued_at: float
    """Unix time in seconds."""

    @property
    def age(self) -> int:
        """Whole seconds since the pair was issued."""
        return max(0, int(time.time() - self.issued_at))


class LoginOrigin(msgspec.Struct, frozen=True):
    """From where somebody signed in, or stayed signed in, as far as it is known."""

    address: str = ""
    agent: str = ""
    """What the browser or program calls itself."""


class Login(msgspec.Struct, frozen=True):
    """A log-in of a person that lasts; times are in ms."""

    family: str
    ends_at: int
    started_at: int | None = None
    """None for one that began before this was remembered."""
    renewed_at: int | None = None
    origin: LoginOrigin = LoginOrigin()


class Refusal(StrEnum):
    """Why there are no tokens."""

    STALE = "STALE"
    """The secret was regenerated, or the application deleted, in the meantime."""
    UNKNOWN = "UNKNOWN"
    """No such refresh token, or no longer."""
    REUSED = "REUSED"
    """The refresh token had been used before; its family is revoked now."""


class TokenWriter:
    """Issues, rotates and revokes; only `auth` has one. Lives and grace period are in seconds."""

    def __init__(
        self, redis: Redis, *, access_life: int, refresh_life: int, reuse_grace: int = 0
    ) -> None:
        self._redis = redis
        self._grace_ms = reuse_grace * 1000
        self._keep_ms = (max(access_life, refresh_life) + MARGIN) * 1000
        self._lives_ms = (access_life * 1000, refresh_life * 1000)
        self._issue = self._script("issue.lua")
        self._rotate = self._script("rotate.lua")
        self._revoke_subject = self._script("revoke_subject.lua")
        self._page = self._script("page.lua")
        self._logins = self._script("logins.lua")
        self._end_login = self._script("end_login.lua")

    async def issue(
        self, principal: Principal, generation: int, origin: LoginOrigin | None = None
    ) -> TokenPair | Refusal:
        """Start a family for `principal`, whose secret was checked at `generation`.

        With `origin` it is listed among the log-ins of the subject.
        """
        family = secrets.token_hex(16)
        return await self._store(self._issue, principal, family, generation, origin)

    async def holder(self, refresh_token: str) -> Principal | None:
        """Whose refresh token this is, be it used or not; None when it is unknown."""
        raw = await self._redis.hget(refresh_key(refresh_token), "principal")
        return None if raw is None else msgspec.json.decode(raw, type=Principal)

    async def rotate(
        self,
        refresh_token: str,
        principal: Principal,
        generation: int,
        origin: LoginOrigin | None = None,
    ) -> TokenPair | Refusal:
        """Use `refresh_token` up and issue the next pair of its family, `principal.family`.

        Within the grace period, return the pair that an earlier use of the token got.
        """
        return await self._store(
            self._rotate, principal, principal.family, generation, origin, used=refresh_token
        )

    async def logins(self, principal: Principal) -> list[Login]:
        """The log-ins of a person, `MAX_LISTED` at most; the one that lasts longest first."""
        found = await self._logins(keys=_subject_keys(principal)[1:], args=[MAX_LISTED])
        return [_login(*row) for row in found]

    async def end_login(self, principal: Principal, family: str) -> bool:
        """Revoke one log-in of a person; False when the person has no such log-in."""
        keys = _subject_keys(principal)[1:]
        return bool(await self._end_login(keys=keys, args=[family]))

    async def revoke_subject(self, kind: Kind, subject: str, generation: int) -> None:
        """Revoke all tokens of a subject that are older than `generation`; repeatable."""
        keys = _keys_of(kind, subject)
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

    async def has_pages(self, family: str) -> bool:
        """Tell whether any page of a log-in that lasts has got a credential."""
        return bool(await self._redis.exists(f"tw:pages:{family}"))

    async def _store(
        self,
        script: AsyncScript,
        principal: Principal,
        family: str,
        generation: int,
        origin: LoginOrigin | None,
        used: str | None = None,
    ) -> TokenPair | Refusal:
        """Issue a pair; `used` is the refresh token that pays for it."""
        pair = TokenPair(secrets.token_urlsafe(32), secrets.token_urlsafe(32), time.time())
        stored = msgspec.structs.replace(principal, family=family)
        keys = [*_subject_keys(principal), token_key(pair.access), refresh_key(pair.refresh)]
        args: list[str | bytes | int] = [
            generation,
            msgspec.json.encode(stored),
            family,
            *self._lives_ms,
            MAX_FAMILIES,
            self._keep_ms,
            b"" if origin is None else msgspec.json.encode(origin),
        ]
        if used is not None:
            keys += [refresh_key(used), f"tw:reissue:{token_hash(used)}"]
            args += [_sealed(pair, used) if self._grace_ms else "", self._grace_ms]
        outcome, *sealed = await script(keys=keys, args=args)
        if used is not None and sealed:
            return _opened(sealed[0], used)
        return pair if outcome == b"OK" else Refusal(outcome.decode())

    def _script(self, name: str) -> AsyncScript:
        text = (_LUA / "common.lua").read_text() + (_LUA / name).read_text()
        return self._redis.register_script(text)


def _subject_keys(principal: Principal) -> list[str]:
    return _keys_of(principal.kind, principal.subject)


def _keys_of(kind: Kind, subject: str) -> list[str]:
    """Where a subject's generation and families stand; kinds have ids of their own."""
    return [f"tw:generation:{kind}:{subject}", f"tw:families:{kind}:{subject}"]


def _sealed(pair: TokenPair, used: str) -> str:
    """Encrypt a pair for the holder of `used`, the refresh token that it was issued for."""
    return _seal_under(used).seal(msgspec.json.encode(pair).decode(), refresh_key(used))


def _opened(sealed: bytes, used: str) -> TokenPair:
    text = _seal_under(used).open(sealed.decode(), refresh_key(used))
    return msgspec.json.decode(text, type=TokenPair)


def _seal_under(token: str) -> Seal:
    """A cipher whose key nobody has without the token; Redis knows only the token's hash."""
    key = HKDF(SHA256(), 32, salt=None, info=b"thingway reissued tokens").derive(token.encode())
    return Seal(base64.urlsafe_b64encode(key).decode().rstrip("="))


def _login(
    family: bytes, ends: bytes, started: bytes | None, renewed: bytes | None, origin: bytes | None
) -> Login:
    return Login(
        family.decode(),
        int(float(ends)),
        None if started is None else int(started),
        None if renewed is None else int(renewed),
        LoginOrigin() if origin is None else msgspec.json.decode(origin, type=LoginOrigin),
    )
