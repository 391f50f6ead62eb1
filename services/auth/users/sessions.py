"""One's own log-ins: those that last, and how one of them is ended."""

from libs.common.errors import NotFound
from libs.common.identity import Caller, Principal
from services.auth.audit.schemas import Deed, Subject
from services.auth.changes import Change, Changes
from services.auth.tokens.writer import Login, TokenWriter
from services.auth.users.schemas import OwnSession

CURRENT = "current"
"""Stands for the session that asks."""


class OwnSessions:
    """Lists and ends the sessions of whoever asks."""

    def __init__(self, changes: Changes, tokens: TokenWriter) -> None:
        self._changes = changes
        self._tokens = tokens

    async def list(self, principal: Principal) -> list[OwnSession]:
        """The sessions that last; the one that asks comes first, then those used last."""
        found = await self._tokens.logins(principal)
        shown = [_shown(login, current=login.family == principal.family) for login in found]
        return sorted(shown, key=lambda one: (not one.current, -int(one.renewed_at or 0)))

    async def end(self, caller: Caller, session_id: str) -> None:
        """End a session, whose tokens and live updates end at once; raise `NotFound`.

        It is over before the audit log says so: what a crash leaves out is the entry.
        """
        principal = caller.principal
        family = principal.family if session_id == CURRENT else session_id
        if not await self._tokens.end_login(principal, family):
            raise NotFound("there is no such session", field="session_id")

        async def work(change: Change) -> None:
            subject = Subject("session", principal.subject, principal.name)
            change.record(Deed(action="ended", subject=subject))

        await self._changes.run(caller, work)


def _shown(login: Login, *, current: bool) -> OwnSession:
    return OwnSession(
        session_id=login.family,
        current=current,
        started_at=None if login.started_at is None else str(login.started_at),
        renewed_at=None if login.renewed_at is None else str(login.renewed_at),
        ends_at=str(login.ends_at),
        address=login.origin.address,
        user_agent=login.origin.agent,
    )
