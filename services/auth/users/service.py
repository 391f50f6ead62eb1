"""Changes of users by a super-admin or by the operator.

Whatever shuts a user out or changes its password ends its tokens before the caller is answered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from libs.common.errors import MalformedRequest, NotFound
from libs.common.identity import Caller, Kind
from services.auth.accounts import Accounts
from services.auth.accounts.users import StoredUser, UserStore
from services.auth.changes import Change, Changes
from services.auth.passwords import PasswordHashes
from services.auth.users.rules import checked_email, checked_nickname, checked_password
from services.auth.users.schemas import EditUser, RegisterUser


@dataclass(frozen=True)
class UserService:
    """Adds, changes and removes users."""

    changes: Changes
    accounts: Accounts
    hashes: PasswordHashes

    async def make(self, tenant: str, wanted: RegisterUser) -> StoredUser:
        """A user who is not stored yet; raise `InvalidInput` naming the field at fault."""
        email, nickname = checked_email(wanted.email), checked_nickname(wanted.nickname)
        hashed = await self.hashes.hash(tenant, checked_password(wanted.password))
        now = datetime.now(UTC)
        return StoredUser(
            id=await self.accounts.users.next_id(),
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
        user = await self.make(caller.tenant, wanted)

        async def insert_user(change: Change) -> None:
            await change.reserve("users")
            await self.accounts.users.insert(user, change.session)
            record_created(change, user)

        await self.changes.run(caller, insert_user)

    async def update(self, caller: Caller, user_id: int, wanted: EditUser) -> None:
        """Set address and nickname; raise `InvalidInput`, `NotFound` or `Conflict`."""
        changes = {
            "email": checked_email(wanted.email),
            "nickname": checked_nickname(wanted.nickname),
        }

        async def update_user(change: Change) -> None:
            before = await self._found(caller, user_id, change)
            after = await self.accounts.users.update(before, change.session, changes)
            change.record("updated", after.subject, _audit_fields(before), _audit_fields(after))

        await self.changes.run(caller, update_user)

    async def set_password(self, caller: Caller, user_id: int, password: str) -> None:
        """Give a user another password; raise `InvalidInput` or `NotFound`."""
        hashed = await self.hashes.hash(caller.tenant, checked_password(password))

        async def replace_user_password(change: Change) -> None:
            user = await self._found(caller, user_id, change)
            await replace_password(self.accounts.users, change, user, hashed)

        await self.changes.run(caller, replace_user_password)

    async def set_enabled(self, caller: Caller, user_id: int, *, enabled: bool) -> None:
        """Let a user in or keep it out; raise `NotFound`, and `InvalidInput` for oneself."""
        if not enabled:
            _refuse_self(caller, [user_id], "disable", "enabled")

        async def update_enabled(change: Change) -> None:
            user = await self._found(caller, user_id, change)
            if user.enabled == enabled:
                return
            after = await self.accounts.users.update(
                user, change.session, {"enabled": enabled}, ends_tokens=not enabled
            )
            action = "enabled" if enabled else "disabled"
            change.record(action, user.subject)
            if not enabled:
                await self._shut_out(change, [after], "enabled")

        await self.changes.run(caller, update_enabled)

    async def delete(self, caller: Caller, ids: Sequence[int], field: str = "user_id_list") -> int:
        """Remove users, passing over unknown ids, and return how many there were.

        Raises `InvalidInput` for oneself, which names `field`.
        """
        _refuse_self(caller, ids, "delete", field)

        async def delete_users(change: Change) -> int:
            users = await self.accounts.users.find(caller.tenant, ids, change.session)
            if not users:
                return 0
            await self.accounts.users.delete(
                caller.tenant, [user.id for user in users], change.session
            )
            for user in users:
                change.record("deleted", user.subject, before=_all_audit_fields(user))
            await self._shut_out(change, [raised(user) for user in users], field)
            return len(users)

        return await self.changes.run(caller, delete_users)

    async def _shut_out(self, change: Change, users: Sequence[StoredUser], field: str) -> None:
        """End all tokens of users who are out.

        The raised version also makes two such changes conflict in MongoDB: without it the
        last two super-admins could remove each other at the same time.
        """
        change.changes_access()
        for user in users:
            change.revoke(Kind.USER, str(user.id), user.generation)
        tenant, session = users[0].tenant, change.session
        role = await self.accounts.roles.super_admin(tenant, session)
        if not await self.accounts.users.any(tenant, session, roles=role, enabled=True):
            raise MalformedRequest("the last super-admin must stay", field=field)

    async def _found(self, caller: Caller, user_id: int, change: Change) -> StoredUser:
        user = await self.accounts.users.get(caller.tenant, user_id, change.session)
        if user is None:
            raise unknown_user(user_id)
        return user


def record_created(change: Change, user: StoredUser) -> None:
    """Record that a user was added."""
    change.record("created", user.subject, after=_all_audit_fields(user))


def unknown_user(user_id: int) -> NotFound:
    """There is no such user in the caller's tenant."""
    return NotFound(f"there is no user {user_id}", field="user_id")


def raised(user: StoredUser) -> StoredUser:
    """The user one generation on, with which its removal revokes."""
    return msgspec.structs.replace(user, generation=user.generation + 1)


async def replace_password(store: UserStore, change: Change, user: StoredUser, hashed: str) -> None:
    """Keep the hash of a new password and end every token of the user."""
    after = await store.update(user, change.session, {"passwordHash": hashed}, ends_tokens=True)
    change.revoke(Kind.USER, str(user.id), after.generation)
    change.record("password_changed", user.subject)


def _refuse_self(caller: Caller, ids: Sequence[int], verb: str, field: str) -> None:
    principal = caller.principal
    if int(principal.subject) in ids:
        raise MalformedRequest(f"you cannot {verb} yourself", field=field)


def _all_audit_fields(user: StoredUser) -> dict[str, Any]:
    """All that comes and goes with a user: whoever registers first gets a role with it."""
    return {**_audit_fields(user), "roleIds": list(user.roles)}


def _audit_fields(user: StoredUser) -> dict[str, Any]:
    return {"email": user.email, "nickname": user.nickname}
