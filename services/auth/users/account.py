"""Registration of a tenant's first user; own password and sessions of users."""

from dataclasses import dataclass

import msgspec

from libs.common.bus import RpcServer
from libs.common.clock import to_ms
from libs.common.contracts.auth import (
    CreateUser,
    DescribedUsers,
    DescribeUsers,
    ListedUser,
    ListUsers,
    UserPassword,
    UserRefByEmail,
    Users,
)
from libs.common.errors import Forbidden, MalformedRequest, NotFound, Unauthenticated
from libs.common.identity import Caller, Principal
from services.auth.accounts import Accounts
from services.auth.accounts.users import StoredUser
from services.auth.audit import AuditTarget
from services.auth.changes import ChangeRunner, ChangeTransaction, build_operator_caller
from services.auth.passwords import LoginThrottle, PasswordHasherPool
from services.auth.tokens.writer import LoginSession, TokenWriter
from services.auth.users.rules import generate_password, validate_email, validate_password
from services.auth.users.schemas import RegisterUser, UserSession
from services.auth.users.service import UserService, record_created, replace_password

MAX_LISTED_USERS = 1000
"""Maximum users in the list of the operator; an answer on the bus is at most 1 MiB."""


@dataclass(frozen=True)
class AccountService:
    """Registration of first users, the caller's password, and the operator's commands."""

    changes: ChangeRunner
    accounts: Accounts
    hashes: PasswordHasherPool
    users: UserService
    throttle: LoginThrottle

    async def describe_nicknames(self, request: DescribeUsers) -> DescribedUsers:
        """Return the nicknames of users by id, for other services."""
        summaries = await self.accounts.users.find_summaries(request.tenant, request.ids)
        return DescribedUsers({str(user.id): user.nickname for user in summaries.values()})

    async def has_users(self, tenant: str) -> bool:
        """Return whether a tenant has a user, which closes registration.

        Raises `NotFound` for an unknown tenant.
        """
        await self._get_super_admin_role_id(tenant)
        return await self.accounts.users.exists(tenant)

    async def register_first_user(
        self, tenant: str, request: RegisterUser, address: str, request_id: str
    ) -> None:
        """Add a tenant's first user as its super-admin.

        Raises `Forbidden` if the tenant has a user, `InvalidInput`, and `NotFound` without the
        tenant.
        """
        role_id = await self._get_super_admin_role_id(tenant)
        if await self.accounts.users.exists(tenant):
            raise _registration_closed_error()
        user = await self.users.build_user(tenant, request)
        user = msgspec.structs.replace(user, roles=(role_id,))

        async def insert_first_user(change: ChangeTransaction) -> None:
            if await self.accounts.users.exists(tenant, change.session):
                raise _registration_closed_error()
            await self._insert_user(user, change)

        await self.changes.run(Caller(user.principal, address, request_id), insert_first_user)

    async def change_password(self, caller: Caller, old: str, new: str) -> None:
        """Set the caller's password and revoke all tokens of the caller.

        Raises `InvalidInput` for a wrong old or weak new password, `TooManyRequests`, and
        `Unavailable` if too many users log in.
        """
        validate_password(new, "new_password")
        user = await self._get_user(caller)
        async with self.throttle.attempt(user.tenant, user.email, caller.address) as attempt:
            attempt.is_correct = await self.hashes.matches(old, user.password_hash)
        if not attempt.is_correct:
            raise _wrong_password_error()
        hashed = await self.hashes.hash(user.tenant, new)

        async def replace_own_password(change: ChangeTransaction) -> None:
            current = await self.accounts.users.get(user.tenant, user.id, change.session)
            if current is None or current.password_hash != user.password_hash:
                raise _wrong_password_error()
            await replace_password(self.accounts.users, change, current, hashed)

        await self.changes.run(caller, replace_own_password)

    async def create_by_operator(self, request: CreateUser) -> UserPassword:
        """Add a user for the operator; raise `InvalidInput`, `Conflict`, `NotFound`."""
        role_id = await self._get_super_admin_role_id(request.tenant)
        password = generate_password()
        fields = RegisterUser(email=request.email, nickname=request.nickname, password=password)
        user = await self.users.build_user(request.tenant, fields)
        if request.super_admin:
            user = msgspec.structs.replace(user, roles=(role_id,))

        async def insert_user(change: ChangeTransaction) -> None:
            await self._insert_user(user, change)

        await self.changes.run(build_operator_caller(request.tenant), insert_user)
        return UserPassword(user.id, user.email, password)

    async def list_users(self, request: ListUsers) -> Users:
        """List users for the operator; raise `NotFound` for an unknown tenant."""
        role_id = await self._get_super_admin_role_id(request.tenant)
        users = await self.accounts.users.list_by_email(
            request.tenant, role_id if request.super_admins else None, MAX_LISTED_USERS
        )
        return Users(
            [
                ListedUser(
                    user_id=user.id,
                    email=user.email,
                    nickname=user.nickname,
                    super_admin=role_id in user.roles,
                    enabled=user.enabled,
                    created_at=to_ms(user.created_at),
                )
                for user in users
            ]
        )

    async def reset_password(self, request: UserRefByEmail) -> UserPassword:
        """Set and return a random password of a user; raise `InvalidInput`, `NotFound`."""
        validate_email(request.email)
        password = generate_password()
        hashed = await self.hashes.hash(request.tenant, password)

        async def replace_user_password(change: ChangeTransaction) -> StoredUser:
            user = await self.accounts.users.find_by_email(
                request.tenant, request.email, change.session
            )
            if user is None:
                raise NotFound(f"user {request.email} does not exist", field="email")
            await replace_password(self.accounts.users, change, user, hashed)
            return user

        user = await self.changes.run(build_operator_caller(request.tenant), replace_user_password)
        return UserPassword(user.id, user.email, password)

    async def _insert_user(self, user: StoredUser, change: ChangeTransaction) -> None:
        """Add a user.

        `mark_access_changed` updates the document of the tenant. Concurrent additions therefore
        conflict in MongoDB, and the second one sees the first user.
        """
        await change.reserve("users")
        await self.accounts.users.insert(user, change.session)
        record_created(change, user)
        change.mark_access_changed()

    async def _get_super_admin_role_id(self, tenant: str) -> int:
        role = await self.accounts.roles.find_super_admin_role_id(tenant)
        if role is None:
            raise NotFound(f"tenant `{tenant}` does not exist", field="TENANT_ID")
        return role

    async def _get_user(self, caller: Caller) -> StoredUser:
        principal = caller.principal
        user = await self.accounts.users.get(principal.tenant, principal.user_id)
        if user is None:
            raise Unauthenticated("the user is deleted")
        return user


def _registration_closed_error() -> Forbidden:
    return Forbidden("registration is closed, because the tenant has a user")


def _wrong_password_error() -> MalformedRequest:
    return MalformedRequest("old password is not correct", field="old_password")


CURRENT_SESSION_ID = "current"
"""Session id that stands for the caller's session."""


@dataclass(frozen=True)
class CallerSessions:
    """Lists and ends the sessions of the caller."""

    changes: ChangeRunner
    tokens: TokenWriter

    async def list(self, principal: Principal) -> list[UserSession]:
        """Return active sessions: the current one first, then by latest use."""
        found = await self.tokens.list_sessions(principal)
        sessions = [
            _build_user_session(login, current=login.family == principal.family) for login in found
        ]
        return sorted(sessions, key=lambda each: (not each.current, -int(each.renewed_at or 0)))

    async def end(self, caller: Caller, session_id: str) -> None:
        """End a session with its tokens and live updates immediately; raise `NotFound`.

        The session ends before the audit entry is written, so a crash can only lose the entry.
        """
        principal = caller.principal
        family = principal.family if session_id == CURRENT_SESSION_ID else session_id
        if not await self.tokens.end_session(principal, family):
            raise NotFound("the session does not exist", field="session_id")

        subject = AuditTarget("session", principal.subject, principal.name)
        await self.changes.record(caller, "ended", subject)


def _build_user_session(login: LoginSession, *, current: bool) -> UserSession:
    return UserSession.from_fields(
        login,
        session_id=login.family,
        current=current,
        address=login.origin.address,
        user_agent=login.origin.agent,
    )


def offer_users(rpc: RpcServer, service: AccountService) -> None:
    """Offer the operations on users as `rpc.auth.…`."""
    rpc.offer("list_users", ListUsers, service.list_users)
    rpc.offer("create_user", CreateUser, service.create_by_operator)
    rpc.offer("reset_user_password", UserRefByEmail, service.reset_password)
    rpc.offer("describe_users", DescribeUsers, service.describe_nicknames)
