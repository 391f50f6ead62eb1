"""Changes of users by a super-admin or by the operator.

Disabling or deleting a user, or changing the password, revokes the user's tokens before the caller
gets a response.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from libs.common.errors import MalformedRequest, NotFound
from libs.common.identity import Caller, PrincipalKind
from services.auth.accounts import Accounts
from services.auth.accounts.users import StoredUser, UserStore
from services.auth.changes import ChangeRunner, ChangeTransaction
from services.auth.passwords import PasswordHasherPool
from services.auth.users.rules import validate_email, validate_nickname, validate_password
from services.auth.users.schemas import EditUser, RegisterUser


@dataclass(frozen=True)
class UserService:
    """Adds, changes and deletes users."""

    changes: ChangeRunner
    accounts: Accounts
    hashes: PasswordHasherPool

    async def build_user(self, tenant: str, request: RegisterUser) -> StoredUser:
        """Return a new user that is not stored yet; raise `InvalidInput` with the field."""
        email, nickname = validate_email(request.email), validate_nickname(request.nickname)
        hashed = await self.hashes.hash(tenant, validate_password(request.password))
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

    async def create(self, caller: Caller, request: RegisterUser) -> None:
        """Add a user without roles.

        Raises `InvalidInput`, `Conflict` or `TooManyRequests`.
        """
        user = await self.build_user(caller.tenant, request)

        async def insert_user(change: ChangeTransaction) -> None:
            await change.reserve("users")
            await self.accounts.users.insert(user, change.session)
            record_created(change, user)

        await self.changes.run(caller, insert_user)

    async def update(self, caller: Caller, user_id: int, request: EditUser) -> None:
        """Change address and nickname; raise `InvalidInput`, `NotFound` or `Conflict`."""
        changes = {
            "email": validate_email(request.email),
            "nickname": validate_nickname(request.nickname),
        }

        async def update_user(change: ChangeTransaction) -> None:
            before = await self._get(caller, user_id, change)
            after = await self.accounts.users.update(before, change.session, changes)
            change.record(
                "updated", after.audit_target, _audit_fields(before), _audit_fields(after)
            )

        await self.changes.run(caller, update_user)

    async def set_password(self, caller: Caller, user_id: int, password: str) -> None:
        """Set the password of a user; raise `InvalidInput` or `NotFound`."""
        hashed = await self.hashes.hash(caller.tenant, validate_password(password))

        async def replace_user_password(change: ChangeTransaction) -> None:
            user = await self._get(caller, user_id, change)
            await replace_password(self.accounts.users, change, user, hashed)

        await self.changes.run(caller, replace_user_password)

    async def set_enabled(self, caller: Caller, user_id: int, *, enabled: bool) -> None:
        """Enable or disable a user; raise `NotFound`.

        Raises `InvalidInput` for disabling the caller or the last enabled super-admin.
        """
        if not enabled:
            _reject_self(caller, [user_id], "disable", "enabled")

        async def update_enabled(change: ChangeTransaction) -> None:
            user = await self._get(caller, user_id, change)
            if user.enabled == enabled:
                return
            after = await self.accounts.users.update(
                user, change.session, {"enabled": enabled}, ends_tokens=not enabled
            )
            action = "enabled" if enabled else "disabled"
            change.record(action, user.audit_target)
            if not enabled:
                await self._revoke_tokens(change, [after], "enabled")

        await self.changes.run(caller, update_enabled)

    async def delete(self, caller: Caller, ids: Sequence[int], field: str = "user_id_list") -> int:
        """Delete users, ignoring unknown ids, and return the number of deleted users.

        Raises `InvalidInput` with `field` if `ids` include the caller or all enabled super-admins.
        """
        _reject_self(caller, ids, "delete", field)

        async def delete_users(change: ChangeTransaction) -> int:
            users = await self.accounts.users.find(caller.tenant, ids, change.session)
            if not users:
                return 0
            await self.accounts.users.delete(
                caller.tenant, [user.id for user in users], change.session
            )
            for user in users:
                change.record("deleted", user.audit_target, before=_audit_fields_with_roles(user))
            await self._revoke_tokens(change, [with_next_generation(user) for user in users], field)
            return len(users)

        return await self.changes.run(caller, delete_users)

    async def _revoke_tokens(
        self, change: ChangeTransaction, users: Sequence[StoredUser], field: str
    ) -> None:
        """Revoke all tokens of disabled or deleted users.

        `mark_access_changed` updates the document of the tenant, so concurrent changes conflict in
        MongoDB. Otherwise the last two super-admins could delete each other at the same time.
        """
        change.mark_access_changed()
        for user in users:
            change.revoke_tokens(PrincipalKind.USER, str(user.id), user.generation)
        tenant, session = users[0].tenant, change.session
        role = await self.accounts.roles.find_super_admin_role_id(tenant, session)
        if not await self.accounts.users.exists(tenant, session, roles=role, enabled=True):
            raise MalformedRequest("the last enabled super-admin must stay", field=field)

    async def _get(self, caller: Caller, user_id: int, change: ChangeTransaction) -> StoredUser:
        user = await self.accounts.users.get(caller.tenant, user_id, change.session)
        if user is None:
            raise user_not_found_error(user_id)
        return user


def record_created(change: ChangeTransaction, user: StoredUser) -> None:
    """Record that a user was added."""
    change.record("created", user.audit_target, after=_audit_fields_with_roles(user))


def user_not_found_error(user_id: int) -> NotFound:
    """Return the error for a user that does not exist in the caller's tenant."""
    return NotFound(f"user {user_id} does not exist", field="user_id")


def with_next_generation(user: StoredUser) -> StoredUser:
    """Return the user with the next generation, which revokes its tokens."""
    return msgspec.structs.replace(user, generation=user.generation + 1)


async def replace_password(
    store: UserStore, change: ChangeTransaction, user: StoredUser, hashed: str
) -> None:
    """Store the hash of a new password and revoke all tokens of the user."""
    after = await store.update(user, change.session, {"passwordHash": hashed}, ends_tokens=True)
    change.revoke_tokens(PrincipalKind.USER, str(user.id), after.generation)
    change.record("password_changed", user.audit_target)


def _reject_self(caller: Caller, ids: Sequence[int], verb: str, field: str) -> None:
    principal = caller.principal
    if int(principal.subject) in ids:
        raise MalformedRequest(f"you cannot {verb} yourself", field=field)


def _audit_fields_with_roles(user: StoredUser) -> dict[str, Any]:
    """Return audit fields with the ids of the user's roles."""
    return {**_audit_fields(user), "roleIds": list(user.roles)}


def _audit_fields(user: StoredUser) -> dict[str, Any]:
    return {"email": user.email, "nickname": user.nickname}
