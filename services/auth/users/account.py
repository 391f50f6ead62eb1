"""How a tenant gets its first users, and what people do with their own account."""

from collections.abc import Sequence

import msgspec

from libs.common.contracts.auth import (
    CreateUser,
    DescribedUsers,
    DescribeUsers,
    UserPassword,
    UserRefByEmail,
)
from libs.common.errors import Forbidden, MalformedRequest, NotFound, Unauthenticated
from libs.common.identity import Caller
from services.auth.accounts import Accounts
from services.auth.accounts.users import StoredUser
from services.auth.changes import Change, Changes, operator
from services.auth.passwords.hashing import PasswordHashes
from services.auth.passwords.rule import checked_password, new_password
from services.auth.passwords.throttle import Throttle
from services.auth.users.rules import checked_email
from services.auth.users.schemas import RegisterUser
from services.auth.users.service import UserService, created, replace_password


class AccountService:
    """Registration, one's own password, and the operator's commands."""

    def __init__(
        self,
        changes: Changes,
        accounts: Accounts,
        hashes: PasswordHashes,
        users: UserService,
        throttle: Throttle,
    ) -> None:
        self._changes = changes
        self._store = accounts.users
        self._roles = accounts.roles
        self._hashes = hashes
        self._users = users
        self._throttle = throttle

    async def describe(self, wanted: DescribeUsers) -> DescribedUsers:
        """Answer services, which show people by their nicknames."""
        found = await self._store.people(wanted.tenant, wanted.ids)
        return DescribedUsers({str(user.id): user.nickname for user in found.values()})

    async def has_users(self, tenant: str) -> bool:
        """Tell whether a tenant's registration is closed; raise `NotFound` without the tenant."""
        await self._super_admins(tenant)
        return await self._store.any(tenant)

    async def register(
        self, tenant: str, wanted: RegisterUser, address: str, request_id: str
    ) -> None:
        """Add a tenant's first user, its super-admin.

        Raises `Forbidden` when there is a user, `InvalidInput`, and `NotFound` without the tenant.
        """
        roles = await self._super_admins(tenant)
        if await self._store.any(tenant):
            raise _closed()
        user = await self._users.make(tenant, wanted)
        user = msgspec.structs.replace(user, roles=tuple(roles))

        async def work(change: Change) -> None:
            if await self._store.any(tenant, change.session):
                raise _closed()
            await self._add(user, change)

        await self._changes.run(Caller(user.principal, address, request_id), work)

    async def change_password(self, caller: Caller, old: str, new: str) -> None:
        """Set one's own password, which ends all of one's tokens, the caller's too.

        Raises `InvalidInput` for a wrong old one or a weak new one, `TooManyRequests`, and
        `Unavailable` under a storm of log-ins.
        """
        checked_password(new, "new_password")
        user = await self._own(caller)
        async with self._throttle.attempt(user.tenant, user.email, caller.address) as attempt:
            attempt.right = await self._hashes.matches(old, user.password_hash)
        if not attempt.right:
            raise _wrong_old()
        hashed = await self._hashes.hash(user.tenant, new)

        async def work(change: Change) -> None:
            current = await self._store.get(user.tenant, user.id, change.session)
            if current is None or current.password_hash != user.password_hash:
                raise _wrong_old()
            await replace_password(self._store, change, current, hashed)

        await self._changes.run(caller, work)

    async def create(self, wanted: CreateUser) -> UserPassword:
        """Add a user by the operator's command; raise `InvalidInput`, `Conflict`, `NotFound`."""
        roles = await self._super_admins(wanted.tenant)
        password = new_password()
        fields = RegisterUser(email=wanted.email, nickname=wanted.nickname, password=password)
        user = await self._users.make(wanted.tenant, fields)
        if wanted.super_admin:
            user = msgspec.structs.replace(user, roles=tuple(roles))

        async def work(change: Change) -> None:
            await self._add(user, change)

        await self._changes.run(operator(wanted.tenant), work)
        return UserPassword(user.id, user.email, password)

    async def reset_password(self, wanted: UserRefByEmail) -> UserPassword:
        """Give a user a new password by the operator's command; raise `NotFound`."""
        checked_email(wanted.email)
        password = new_password()
        hashed = await self._hashes.hash(wanted.tenant, password)

        async def work(change: Change) -> StoredUser:
            user = await self._store.by_email(wanted.tenant, wanted.email, change.session)
            if user is None:
                raise NotFound(f"there is no user {wanted.email}", field="email")
            await replace_password(self._store, change, user, hashed)
            return user

        user = await self._changes.run(operator(wanted.tenant), work)
        return UserPassword(user.id, user.email, password)

    async def _add(self, user: StoredUser, change: Change) -> None:
        """Add a user.

        The raised version makes two of these conflict in MongoDB, so that the second one's
        look at the tenant's users sees the first one's.
        """
        await change.reserve("users")
        await self._store.insert(user, change.session)
        change.record(created(user))
        change.changes_access()

    async def _super_admins(self, tenant: str) -> Sequence[int]:
        role = await self._roles.super_admin(tenant)
        if role is None:
            raise NotFound(f"there is no tenant {tenant}", field="TENANT_ID")
        return [role]

    async def _own(self, caller: Caller) -> StoredUser:
        principal = caller.principal
        user = await self._store.get(principal.tenant, principal.user_id)
        if user is None:
            raise Unauthenticated("the user is gone")
        return user


def _closed() -> Forbidden:
    return Forbidden("registration is closed: the tenant has its first user")


def _wrong_old() -> MalformedRequest:
    return MalformedRequest("old password is not correct", field="old_password")
