"""Changes of users by a super-admin or by the operator.

Whatever shuts a user out or changes its password ends its tokens before the caller is answered.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from libs.common.errors import MalformedRequest, NotFound
from libs.common.identity import Caller, Kind
from services.auth.accounts import Accounts
from services.auth.accounts.users import StoredUser, UserStore
from services.auth.audit.schemas import Deed
from services.auth.changes import Change, Changes
from services.auth.passwords.hashing import PasswordHashes
from services.auth.passwords.rule import checked_password
from services.auth.users.rules import checked_email, checked_nickname
from services.auth.users.schemas import EditUser, RegisterUser


class UserService:
    """Adds, changes and removes users."""

    def __init__(
        self,
        changes: Changes,
        accounts: Accounts,
        hashes: PasswordHashes,
        next_id: Callable[[], Awaitable[int]],
    ) -> None:
        self._changes = changes
        self._store = accounts.users
        self._roles = accounts.roles
        self._hashes = hashes
        self._next_id = next_id

    async def make(self, tenant: str, wanted: RegisterUser) -> StoredUser:
        """A user who is not stored yet; raise `InvalidInput` naming the field at fault."""
        email, nickname = checked_email(wanted.email), checked_nickname(wanted.nickname)
        hashed = await self._hashes.hash(tenant, checked_password(wanted.password))
        now = datetime.now(UTC)
        return StoredUser(
            id=await self._next_id(),
            tenant=tenant,
            email=email,
            nickname=nickname,
            password_hash=hashed,
            generation=1,
            created_at=now,
            updated_at=now,
        )

    async def create(self, caller: Caller, wanted: RegisterUser) -> None:
        """Add a user without roles; raise `InvalidInput`, `Conflict` or `TooManyRequests`."""
        user = await self.make(caller.principal.tenant, wanted)

        async def work(change: Change) -> None:
            await change.reserve("users")
            await self._store.insert(user, change.session)
            change.record(created(user))

        await self._changes.run(caller, work)

    async def update(self, caller: Caller, user_id: int, wanted: EditUser) -> None:
        """Set address and nickname; raise `InvalidInput`, `NotFound` or `Conflict`."""
        changes = {
            "email": checked_email(wanted.email),
            "nickname": checked_nickname(wanted.nickname),
        }

        async def work(change: Change) -> None:
            before = await self._found(caller, user_id, change)
            after = await self._store.update(before, change.session, changes)
            told = {"before": _told(before), "after": _told(after)}
            change.record(Deed(action="updated", subject=after.subject, **told))

        await self._changes.run(caller, work)

    async def set_password(self, caller: Caller, user_id: int, password: str) -> None:
        """Give a user another password; raise `InvalidInput` or `NotFound`."""
        hashed = await self._hashes.hash(caller.principal.tenant, checked_password(password))

        async def work(change: Change) -> None:
            user = await self._found(caller, user_id, change)
            await replace_password(self._store, change, user, hashed)

        await self._changes.run(caller, work)

    async def set_enabled(self, caller: Caller, user_id: int, *, enabled: bool) -> None:
        """Let a user in or keep it out; raise `NotFound`, and `InvalidInput` for oneself."""
        if not enabled:
            _refuse_self(caller, [user_id], "disable", "enabled")

        async def work(change: Change) -> None:
            user = await self._found(caller, user_id, change)
            if user.enabled == enabled:
                return
            after = await self._store.update(
                user, change.session, {"enabled": enabled}, ends_tokens=not enabled
            )
            action = "enabled" if enabled else "disabled"
            change.record(Deed(action=action, subject=user.subject))
            if not enabled:
                await self._shut_out(change, [after], "enabled")

        await self._changes.run(caller, work)

    async def delete_one(self, caller: Caller, user_id: int) -> None:
        """Remove a user; raise `NotFound`, and `InvalidInput` for oneself."""
        if not await self._delete(caller, [user_id], "user_id"):
            raise unknown_user(user_id)

    async def delete(self, caller: Caller, ids: Sequence[int]) -> None:
        """Remove users, passing over unknown ids; raise `InvalidInput` for oneself."""
        await self._delete(caller, ids, "user_id_list")

    async def _delete(self, caller: Caller, ids: Sequence[int], field: str) -> int:
        """Remove users and return how many there were."""
        _refuse_self(caller, ids, "delete", field)
        tenant = caller.principal.tenant

        async def work(change: Change) -> int:
            users = await self._store.of_ids(tenant, ids, change.session)
            if not users:
                return 0
            await self._store.delete(tenant, [user.id for user in users], change.session)
            for user in users:
                change.record(Deed(action="deleted", subject=user.subject, before=_whole(user)))
            await self._shut_out(change, [raised(user) for user in users], field)
            return len(users)

        return await self._changes.run(caller, work)

    async def _shut_out(self, change: Change, users: Sequence[StoredUser], field: str) -> None:
        """End all tokens of users who are out.

        The raised version also makes two such changes conflict in MongoDB: without it the
        last two super-admins could remove each other at the same time.
        """
        change.changes_access()
        for user in users:
            change.revoke(Kind.USER, str(user.id), user.generation)
        tenant, session = users[0].tenant, change.session
        role = await self._roles.super_admin(tenant, session)
        if not await self._store.anybody_has(tenant, role, session, enabled=True):
            raise MalformedRequest("the last super-admin must stay", field=field)

    async def _found(self, caller: Caller, user_id: int, change: Change) -> StoredUser:
        user = await self._store.get(caller.principal.tenant, user_id, change.session)
        if user is None:
            raise unknown_user(user_id)
        return user


def created(user: StoredUser) -> Deed:
    """The deed that added a user."""
    return Deed(action="created", subject=user.subject, after=_whole(user))


def unknown_user(user_id: int) -> NotFound:
    """There is no such user in the caller's tenant."""
    return NotFound(f"there is no user {user_id}", field="user_id")


def raised(user: StoredUser) -> StoredUser:
    """The user one generation on, with which its removal revokes."""
    return msgspec.structs.replace(user, generation=user.generation + 1)


async def replace_password(store: UserStore, change: Change, user: StoredUser, hashed: str) -> None:
    """Keep the hash of a new password and end every token of the user."""
    after = await store.update(user, change.session, {"password_hash": hashed}, ends_tokens=True)
    change.revoke(Kind.USER, str(user.id), after.generation)
    change.record(Deed(action="password_changed", subject=user.subject))


def _refuse_self(caller: Caller, ids: Sequence[int], verb: str, field: str) -> None:
    principal = caller.principal
    if int(principal.subject) in ids:
        raise MalformedRequest(f"you cannot {verb} yourself", field=field)


def _whole(user: StoredUser) -> dict[str, Any]:
    """All that comes and goes with a user: whoever registers first gets a role with it."""
    return {**_told(user), "roleIds": list(user.roles)}


def _told(user: StoredUser) -> dict[str, Any]:
    return {"email": user.email, "nickname": user.nickname}
