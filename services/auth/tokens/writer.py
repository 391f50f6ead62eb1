"""Issues, rotates and revokes tokens in Redis.

Issuing cannot race with revocation. Each subject has a **generation** in MongoDB. Each change that
revokes all tokens of the subject raises it, for example a new secret. The scripts reject a
generation lower than the highest one that Redis has seen, and delete all tokens of earlier
generations when they see a higher one. A used refresh token is stored until it would have expired;
using it again revokes its family.

A writer with a grace period returns the same pair for a second use within that time, for clients
that send a refresh twice. Redis stores that pair encrypted with a key derived from the used token,
and deletes it with the family.
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

from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.seal import Seal
from libs.common.identity.tokens import refresh_key, token_hash, token_key
from libs.common.store.redis import Redis

MAX_FAMILIES_PER_SUBJECT = 10_000
"""Maximum token families (logins with their refreshes) of one subject. With more, the family that
expires first is revoked. A client that logs in for every request uses about 10 MB."""
MAX_LIVE_CREDENTIALS = 100
"""Maximum live-update credentials of a session. With more, the oldest one is deleted."""
MAX_LISTED_SESSIONS = 100
"""Maximum listed sessions of a user."""
GENERATION_MARGIN_SECONDS = 60
"""Seconds for which a generation is stored after its subject's last token has expired."""

_SCRIPTS_FOLDER = Path(__file__).parent


class TokenPair(msgspec.Struct, frozen=True):
    """The tokens of a login or refresh, shown only once."""

    access: str
    refresh: str
    issued_at: float
    """Unix time in seconds."""

    @property
    def age_seconds(self) -> int:
        """Return the whole seconds since the pair was issued."""
        return max(0, int(time.time() - self.issued_at))


class LoginOrigin(msgspec.Struct, frozen=True):
    """Address and user agent of a login or refresh, as far as known."""

    address: str = ""
    agent: str = ""
    """The user agent of the browser or program."""


class LoginSession(msgspec.Struct, frozen=True):
    """An active session of a user. Times are in ms."""

    family: str
    ends_at: int
    started_at: int | None = None
    """None for a session that an earlier version of the platform started."""
    renewed_at: int | None = None
    origin: LoginOrigin = LoginOrigin()


class TokenRejection(StrEnum):
    """Reasons for rejecting a token request."""

    STALE = "STALE"
    """The secret was replaced or the subject deleted meanwhile."""
    UNKNOWN = "UNKNOWN"
    """The refresh token is unknown or expired."""
    REUSED = "REUSED"
    """The refresh token was used before, so its family was revoked."""


class TokenWriter:
    """Issues, rotates and revokes tokens. Lifetimes and grace period are in seconds."""

    def __init__(
        self, redis: Redis, *, access_life: int, refresh_life: int, reuse_grace: int = 0
    ) -> None:
        self._redis = redis
        self._grace_ms = reuse_grace * 1000
        self._keep_ms = (max(access_life, refresh_life) + GENERATION_MARGIN_SECONDS) * 1000
        self._lives_ms = (access_life * 1000, refresh_life * 1000)
        self._issue = self._load_script("issue.lua")
        self._rotate = self._load_script("rotate.lua")
        self._revoke_subject = self._load_script("revoke_subject.lua")
        self._add_page = self._load_script("page.lua")
        self._list_sessions = self._load_script("logins.lua")
        self._end_session = self._load_script("end_login.lua")

    async def issue(
        self, principal: Principal, generation: int, origin: LoginOrigin | None = None
    ) -> TokenPair | TokenRejection:
        """Issue the first tokens of a login of `principal`, verified at `generation`.

        With `origin`, the login is listed among the sessions of the subject.
        """
        family = secrets.token_hex(16)
        return await self._run_issue_script(self._issue, principal, family, generation, origin)

    async def find_principal(self, refresh_token: str) -> Principal | None:
        """Return the owner of a refresh token, used or not; None if it is unknown."""
        raw = await self._redis.hget(refresh_key(refresh_token), "principal")
        return None if raw is None else msgspec.json.decode(raw, type=Principal)

    async def rotate(
        self,
        refresh_token: str,
        principal: Principal,
        generation: int,
        origin: LoginOrigin | None = None,
    ) -> TokenPair | TokenRejection:
        """Exchange `refresh_token` for the next pair of `principal.family`.

        If the token was used within the grace period, return the pair of that use again.
        """
        return await self._run_issue_script(
            self._rotate, principal, principal.family, generation, origin, used_token=refresh_token
        )

    async def list_sessions(self, principal: Principal) -> list[LoginSession]:
        """Return up to `MAX_LISTED_SESSIONS` sessions of a user, latest expiry first."""
        sessions = await self._list_sessions(
            keys=_subject_keys(principal)[1:], args=[MAX_LISTED_SESSIONS]
        )
        return [_parse_session(*row) for row in sessions]

    async def end_session(self, principal: Principal, family: str) -> bool:
        """Revoke one session of a user; return False if it does not exist."""
        keys = _subject_keys(principal)[1:]
        return bool(await self._end_session(keys=keys, args=[family]))

    async def revoke_older_tokens(self, kind: PrincipalKind, subject: str, generation: int) -> None:
        """Revoke tokens of a subject with a generation below `generation`. Idempotent."""
        keys = _generation_and_families_keys(kind, subject)
        await self._revoke_subject(keys=keys, args=[generation, self._keep_ms])

    async def add_live_credential(self, principal: Principal, key: str) -> bool:
        """Store a page's credential until its session ends; return False if it has ended.

        Permissions are not stored, because they are looked up when the credential is used.
        """
        plain = msgspec.structs.replace(
            principal, functions=frozenset(), super_admin=False, access=0
        )
        family = principal.family
        keys = [f"tw:family:{family}", f"tw:pages:{family}", key]
        return bool(
            await self._add_page(keys=keys, args=[msgspec.json.encode(plain), MAX_LIVE_CREDENTIALS])
        )

    async def has_live_credentials(self, family: str) -> bool:
        """Return whether a page of an active session has credentials for MQTT.

        The page does not have to be connected.
        """
        return bool(await self._redis.exists(f"tw:pages:{family}"))

    async def _run_issue_script(
        self,
        script: AsyncScript,
        principal: Principal,
        family: str,
        generation: int,
        origin: LoginOrigin | None,
        used_token: str | None = None,
    ) -> TokenPair | TokenRejection:
        """Store a new pair with `script`; `used_token` is the replaced refresh token."""
        pair = TokenPair(secrets.token_urlsafe(32), secrets.token_urlsafe(32), time.time())
        stored = msgspec.structs.replace(principal, family=family)
        keys = [*_subject_keys(principal), token_key(pair.access), refresh_key(pair.refresh)]
        args: list[str | bytes | int] = [
            generation,
            msgspec.json.encode(stored),
            family,
            *self._lives_ms,
            MAX_FAMILIES_PER_SUBJECT,
            self._keep_ms,
            b"" if origin is None else msgspec.json.encode(origin),
        ]
        if used_token is not None:
            keys += [refresh_key(used_token), f"tw:reissue:{token_hash(used_token)}"]
            args += [_seal_pair(pair, used_token) if self._grace_ms else "", self._grace_ms]
        outcome, *sealed = await script(keys=keys, args=args)
        if used_token is not None and sealed:
            return _open_pair(sealed[0], used_token)
        return pair if outcome == b"OK" else TokenRejection(outcome.decode())

    def _load_script(self, name: str) -> AsyncScript:
        text = (_SCRIPTS_FOLDER / "common.lua").read_text() + (_SCRIPTS_FOLDER / name).read_text()
        return self._redis.register_script(text)


def _subject_keys(principal: Principal) -> list[str]:
    return _generation_and_families_keys(principal.kind, principal.subject)


def _generation_and_families_keys(kind: PrincipalKind, subject: str) -> list[str]:
    """Return the Redis keys of a subject's generation and families."""
    return [f"tw:generation:{kind}:{subject}", f"tw:families:{kind}:{subject}"]


def _seal_pair(pair: TokenPair, used_token: str) -> str:
    """Encrypt a pair for the holder of the refresh token that was exchanged for it."""
    return _derive_seal(used_token).seal(
        msgspec.json.encode(pair).decode(), refresh_key(used_token)
    )


def _open_pair(sealed: bytes, used_token: str) -> TokenPair:
    text = _derive_seal(used_token).open(sealed.decode(), refresh_key(used_token))
    return msgspec.json.decode(text, type=TokenPair)


def _derive_seal(token: str) -> Seal:
    """Return a cipher whose key is derived from a token.

    Redis stores only the hash of the token.
    """
    key = HKDF(SHA256(), 32, salt=None, info=b"thingway reissued tokens").derive(token.encode())
    return Seal(base64.urlsafe_b64encode(key).decode().rstrip("="))


def _parse_session(
    family: bytes, ends: bytes, started: bytes | None, renewed: bytes | None, origin: bytes | None
) -> LoginSession:
    return LoginSession(
        family.decode(),
        int(float(ends)),
        None if started is None else int(started),
        None if renewed is None else int(renewed),
        LoginOrigin() if origin is None else msgspec.json.decode(origin, type=LoginOrigin),
    )
