"""How a tenant gets its first users, and what people do with their own account and sessions."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from libs.common.bus import RpcServer
from libs.common.contracts.auth import (
    CreateUser,
    DescribedUsers,
    DescribeUsers,
    UserPassword,
    UserRefByEmail,
)
from libs.common.errors import Forbidden, MalformedRequest, NotFound, Unauthenticated
from libs.common.identity import Caller, Principal
from services.auth.accounts import Accounts
from services.auth.accounts.users import StoredUser
from services.auth.audit import Subject
from services.auth.changes import Change, Changes, operator
from services.auth.passwords import LoginThrottle, PasswordHashes
from services.auth.tokens.writer import Login, TokenWriter
from services.auth.users.rules import checked_email, checked_password, new_password
from services.auth.users.schemas import OwnSession, RegisterUser
from services.auth.users.service import UserService, record_created, replace_password


@dataclass(frozen=True)
class AccountService:
    """Registration, one's own password, and the operator's commands."""

    changes: Changes
    accounts: Accounts
    hashes: PasswordHashes
    users: UserService
    throttle: LoginThrottle

    async def describe(self, wanted: DescribeUsers) -> DescribedUsers:
        """Answer services, which show people by their nicknames."""
        found = await self.accounts.users.people(wanted.tenant, wanted.ids)
        return DescribedUsers({str(user.id): user.nickname for user in found.values()})

    async def has_users(self, tenant: str) -> bool:
        """Tell whether a tenant's registration is closed; raise `NotFound` without the tenant."""
        await self._super_admins(tenant)
        return await self.accounts.users.any(tenant)

    async def register(
        self, tenant: str, wanted: RegisterUser, address: str, request_id: str
    ) -> None:
        """Add a tenant's first user, its super-admin.

        Raises `Forbidden` when there is a user, `InvalidInput`, and `NotFound` without the tenant.
        """
        roles = await self._super_admins(tenant)
        if await self.accounts.users.any(tenant):
            raise _closed()
        user = await self.users.make(tenant, wanted)
        user = msgspec.structs.replace(user, roles=tuple(roles))

        async def insert_first_user(change: Change) -> None:
            if await self.accounts.users.any(tenant, change.session):
                raise _closed()
            await self._add(user, change)

        await self.changes.run(Caller(user.principal, address, request_id), insert_first_user)

    async def change_password(self, caller: Caller, old: str, new: str) -> None:
        """Set one's own password, which ends all of one's tokens, the caller's too.

        Raises `InvalidInput` for a wrong old one or a weak new one, `TooManyRequests`, and
        `Unavailable` under a storm of log-ins.
        """
        checked_password(new, "new_password")
        user = await self._own(caller)
        async with self.throttle.attempt(user.tenant, user.email, caller.address) as attempt:
            attempt.right = await self.hashes.matches(old, user.password_hash)
        if not attempt.right:
            raise _wrong_old()
        hashed = await self.hashes.hash(user.tenant, new)

        async def replace_own_password(change: Change) -> None:
            current = await self.accounts.users.get(user.tenant, user.id, change.session)
            if current is None or current.password_hash != user.password_hash:
                raise _wrong_old()
            await replace_password(self.accounts.users, change, current, hashed)

        await self.changes.run(caller, replace_own_password)

    async def create(self, wanted: CreateUser) -> UserPassword:
        """Add a user by the operator's command; raise `InvalidInput`, `Conflict`, `NotFound`."""
        roles = await self._super_admins(wanted.tenant)
        password = new_password()
        fields = RegisterUser(email=wanted.email, nickname=wanted.nickname, password=password)
        user = await self.users.make(wanted.tenant, fields)
        if wanted.super_admin:
            user = msgspec.structs.replace(user, roles=tuple(roles))

        async def insert_user(change: Change) -> None:
            await self._add(user, change)

        await self.changes.run(operator(wanted.tenant), insert_user)
        return UserPassword(user.id, user.email, password)

    async def reset_password(self, wanted: UserRefByEmail) -> UserPassword:
        """Give a user a new password by the operator's command; raise `NotFound`."""
        checked_email(wanted.email)
        password = new_password()
        hashed = await self.hashes.hash(wanted.tenant, password)

        async def replace_user_password(change: Change) -> StoredUser:
            user = await self.accounts.users.by_email(wanted.tenant, wanted.email, change.session)
            if user is None:
                raise NotFound(f"there is no user {wanted.email}", field="email")
            await replace_password(self.accounts.users, change, user, hashed)
            return user

        user = await self.changes.run(operator(wanted.tenant), replace_user_password)
        return UserPassword(user.id, user.email, password)

    async def _add(self, user: StoredUser, change: Change) -> None:
        """Add a user.

        The raised version makes two of these conflict in MongoDB, so that the second one's
        look at the tenant's users sees the first one's.
        """
        await change.reserve("users")
        await self.accounts.users.insert(user, change.session)
        record_created(change, user)
        change.changes_access()

    async def _super_admins(self, tenant: str) -> Sequence[int]:
        role = await self.accounts.roles.super_admin(tenant)
        if role is None:
            raise NotFound(f"there is no tenant {tenant}", field="TENANT_ID")
        return [role]

    async def _own(self, caller: Caller) -> StoredUser:
        principal = caller.principal
        user = await self.accounts.users.get(principal.tenant, principal.user_id)
        if user is None:
            raise Unauthenticated("the user is gone")
        return user


def _closed() -> Forbidden:
    return Forbidden("registration is closed: the tenant has its first user")


def _wrong_old() -> MalformedRequest:
    return MalformedRequest("old password is not correct", field="old_password")


CURRENT = "current"
"""Stands for the session that asks."""


@dataclass(frozen=True)
class OwnSessions:
    """Lists and ends the sessions of whoever asks."""

    changes: Changes
    tokens: TokenWriter

    async def list(self, principal: Principal) -> list[OwnSession]:
        """The sessions that last; the one that asks comes first, then those used last."""
        found = await self.tokens.logins(principal)
        shown = [_shown(login, current=login.family == principal.family) for login in found]
        return sorted(shown, key=lambda one: (not one.current, -int(one.renewed_at or 0)))

    async def end(self, caller: Caller, session_id: str) -> None:
        """End a session, whose tokens and live updates end at once; raise `NotFound`.

        It is over before the audit log says so: what a crash leaves out is the entry.
        """
        principal = caller.principal
        family = principal.family if session_id == CURRENT else session_id
        if not await self.tokens.end_login(principal, family):
            raise NotFound("there is no such session", field="session_id")

        subject = Subject("session", principal.subject, principal.name)
        await self.changes.record(caller, "ended", subject)


def _shown(login: Login, *, current: bool) -> OwnSession:
    return OwnSession.from_fields(
        login,
        session_id=login.family,
        current=current,
        address=login.origin.address,
        user_agent=login.origin.agent,
    )


def offer_users(rpc: RpcServer, service: AccountService) -> None:
    """Offer the operations."""
    rpc.offer("create_user", CreateUser, service.create)
    rpc.offer("reset_user_password", UserRefByEmail, service.reset_password)
    rpc.offer("describe_users", DescribeUsers, service.describe)
