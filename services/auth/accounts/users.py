"""Users in MongoDB. `users.roles` holds the ids of a user's roles."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from pymongo import ReturnDocument

from libs.common.errors import Conflict
from libs.common.http.console import PageRequest
from libs.common.identity import Principal, PrincipalKind
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import (
    Database,
    Document,
    Session,
    build_text_condition,
    find_page,
    raise_on_duplicate,
    require_document,
)
from services.auth.audit import AuditTarget

ID_BLOCK_SIZE = 10
"""Ids allocated at a time. A restart wastes at most this many."""
EMAIL_EXISTS_CODE = "user_register_email_exist"
SORT_FIELD_BY_COLUMN = {
    "user_id": "_id",
    "id": "_id",
    "email": "emailKey",
    "nickname": "nickname",
    "created_at": "createdAt",
    "enabled": "enabled",
}
"""Stored field by the name of a sortable column of users."""
_ROLE_USER_FIELD_BY_COLUMN = {
    "id": "_id",
    "user_id": "_id",
    "email": "email",
    "user_email": "email",
    "nickname": "nickname",
    "user_nickname": "nickname",
    "created_at": "createdAt",
}
"""Stored field by the name of a sortable column of a role's users."""
_SUMMARY_FIELDS = {"email": 1, "nickname": 1}


class StoredUser(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A user with the hash of the password."""

    id: int = msgspec.field(name="_id")
    tenant: str
    email: str
    nickname: str
    password_hash: str
    generation: int
    """Incremented to end the user's tokens. Tokens of an earlier generation are invalid."""
    enabled: bool = True
    roles: tuple[int, ...] = ()
    created_at: datetime
    updated_at: datetime

    @property
    def principal(self) -> Principal:
        """Return the principal of the user's tokens, without permissions."""
        return Principal(
            kind=PrincipalKind.USER, tenant=self.tenant, subject=str(self.id), name=self.email
        )

    @property
    def audit_target(self) -> AuditTarget:
        """Return the user as an audit log object."""
        return AuditTarget("user", str(self.id), self.email)


class UserSummary(msgspec.Struct, frozen=True):
    """The public fields of a user."""

    id: int = msgspec.field(name="_id")
    email: str
    nickname: str


def normalize_email(email: str) -> str:
    """Return the address in lower case without surrounding blanks."""
    return email.strip().lower()


class UserStore:
    """The collection `users`."""

    def __init__(self, database: Database) -> None:
        self._users = database["users"]
        self.next_id = IdAllocator(database, "users", ID_BLOCK_SIZE).allocate

    async def get(
        self, tenant: str, user_id: int, session: Session | None = None
    ) -> StoredUser | None:
        """Return one user of a tenant, or None."""
        document = await self._users.find_one({"_id": user_id, "tenant": tenant}, session=session)
        return msgspec.convert(document, StoredUser | None)

    async def find_by_email(
        self, tenant: str, email: str, session: Session | None = None
    ) -> StoredUser | None:
        """Return the user with an email address, ignoring case, or None."""
        query = {"tenant": tenant, "emailKey": normalize_email(email)}
        document = await self._users.find_one(query, session=session)
        return msgspec.convert(document, StoredUser | None)

    async def list_by_email(
        self, tenant: str, role_id: int | None, maximum: int
    ) -> list[StoredUser]:
        """Return up to `maximum` users of a tenant, sorted by email address.

        If `role_id` is not None, return only users with this role.
        """
        query = {"tenant": tenant} | ({} if role_id is None else {"roles": role_id})
        documents = self._users.find(query, sort=[("emailKey", 1)], limit=maximum)
        return msgspec.convert(await documents.to_list(None), list[StoredUser])

    async def find(
        self, tenant: str, ids: Iterable[int], session: Session | None = None
    ) -> list[StoredUser]:
        """Return the tenant's users with one of `ids`."""
        query = {"tenant": tenant, "_id": {"$in": list(ids)}}
        documents = await self._users.find(query, session=session).to_list(None)
        return msgspec.convert(documents, list[StoredUser])

    async def find_summaries(self, tenant: str, ids: Iterable[int]) -> dict[int, UserSummary]:
        """Return the public fields of the tenant's users with one of `ids`, by id."""
        query = {"tenant": tenant, "_id": {"$in": list(ids)}}
        documents = await self._users.find(query, _SUMMARY_FIELDS).to_list(None)
        return {user.id: user for user in msgspec.convert(documents, list[UserSummary])}

    async def list_role_ids(
        self, tenant: str, user_id: int, session: Session, *, only_if_enabled: bool = False
    ) -> list[int] | None:
        """Return the role ids of a user; None if the user does not exist.

        With `only_if_enabled`, also return None for a disabled user.
        """
        query = {"_id": user_id, "tenant": tenant, **({"enabled": True} if only_if_enabled else {})}
        user = await self._users.find_one(query, {"roles": 1}, session=session)
        return None if user is None else user["roles"]

    async def search(
        self, tenant: str, keyword: str, request: PageRequest
    ) -> tuple[list[StoredUser], int]:
        """Return one page of users, and the number of all matches.

        `keyword` is part of the nickname or email address.
        """
        rows, total = await self._search_page(
            {"tenant": tenant}, keyword, request, SORT_FIELD_BY_COLUMN, None
        )
        return msgspec.convert(rows, list[StoredUser]), total

    async def search_by_role(
        self, tenant: str, role_id: int, keyword: str, request: PageRequest, *, having: bool
    ) -> tuple[list[UserSummary], int]:
        """Return one page of users with a role, and the number of all matches.

        If not `having`, return users who do not have the role. `keyword` is part of the nickname or
        email address.
        """
        query = {"tenant": tenant, "roles": role_id if having else {"$ne": role_id}}
        rows, total = await self._search_page(
            query, keyword, request, _ROLE_USER_FIELD_BY_COLUMN, _SUMMARY_FIELDS
        )
        return msgspec.convert(rows, list[UserSummary]), total

    async def exists(
        self, tenant: str, session: Session | None = None, **conditions: int | bool | None
    ) -> bool:
        """Return whether a tenant has a user with these field values.

        Without field values, any user counts.
        """
        query = {"tenant": tenant, **conditions}
        return await self._users.find_one(query, {"_id": 1}, session=session) is not None

    async def count_by_tenant(self) -> dict[str, int]:
        """Return the number of users by tenant."""
        return await self._count_groups({"$group": {"_id": "$tenant", "count": {"$sum": 1}}})

    async def count_by_role(self, tenant: str, roles: Sequence[int]) -> dict[int, int]:
        """Return the number of users of each of `roles`."""
        return await self._count_groups(
            {"$match": {"tenant": tenant, "roles": {"$in": list(roles)}}},
            {"$unwind": "$roles"},
            {"$group": {"_id": "$roles", "count": {"$sum": 1}}},
        )

    async def insert(self, user: StoredUser, session: Session) -> None:
        """Add a user; raise `Conflict` if the email address is in use."""
        document: Document = msgspec.to_builtins(user, builtin_types=(datetime,))
        document["emailKey"] = normalize_email(user.email)
        with raise_on_duplicate(_email_exists_error()):
            await self._users.insert_one(document, session=session)

    async def update(
        self,
        user: StoredUser,
        session: Session,
        changes: Document,
        *,
        ends_tokens: bool = False,
    ) -> StoredUser:
        """Set stored fields of a user; return the updated user.

        With `ends_tokens`, raise the user's generation. Raises `Conflict` if the email address is
        in use.
        """
        fields = {**changes, "updatedAt": datetime.now(UTC)}
        if "email" in changes:
            fields["emailKey"] = normalize_email(changes["email"])
        with raise_on_duplicate(_email_exists_error()):
            document = await self._users.find_one_and_update(
                {"_id": user.id, "tenant": user.tenant},
                {"$set": fields, "$inc": {"generation": int(ends_tokens)}},
                return_document=ReturnDocument.AFTER,
                session=session,
            )
        return msgspec.convert(require_document(document), StoredUser)

    async def replace_hash_if_unchanged(
        self, user: StoredUser, hashed: str, session: Session
    ) -> None:
        """Store a new hash of the same password, unless the password changed meanwhile."""
        query = {"_id": user.id, "tenant": user.tenant, "passwordHash": user.password_hash}
        await self._users.update_one(query, {"$set": {"passwordHash": hashed}}, session=session)

    async def delete(self, tenant: str, ids: Sequence[int], session: Session) -> None:
        """Delete users."""
        query = {"tenant": tenant, "_id": {"$in": list(ids)}}
        await self._users.delete_many(query, session=session)

    async def add_role(
        self, tenant: str, role_id: int, ids: Sequence[int], session: Session
    ) -> list[int]:
        """Assign a role to users; return the ids of users who did not have it."""
        query = {"_id": {"$in": list(ids)}, "tenant": tenant, "roles": {"$ne": role_id}}
        return await self._set_roles(query, {"$addToSet": {"roles": role_id}}, session)

    async def remove_role(
        self, tenant: str, role_id: int, ids: Sequence[int], session: Session
    ) -> list[int]:
        """Remove a role from users; return the ids of users who had it."""
        query = {"_id": {"$in": list(ids)}, "tenant": tenant, "roles": role_id}
        return await self._set_roles(query, {"$pull": {"roles": role_id}}, session)

    async def _set_roles(self, query: Document, update: Document, session: Session) -> list[int]:
        cursor = self._users.find(query, {"_id": 1}, session=session).sort("_id", 1)
        ids = [int(document["_id"]) async for document in cursor]
        if ids:
            query = {"_id": {"$in": ids}, "tenant": query["tenant"]}
            await self._users.update_many(query, update, session=session)
        return ids

    async def _search_page(
        self,
        query: Document,
        keyword: str,
        request: PageRequest,
        columns: Mapping[str, str],
        fields: Mapping[str, int] | None,
    ) -> tuple[list[Document], int]:
        if keyword:
            part = build_text_condition(keyword)
            query["$or"] = [{"nickname": part}, {"email": part}]
        order = request.order(columns)
        return await find_page(self._users, query, order, request.skip, request.limit, fields)

    async def _count_groups(self, *stages: Document) -> dict[Any, int]:
        rows = await self._users.aggregate(list(stages))
        return {row["_id"]: row["count"] async for row in rows}


def _email_exists_error() -> Conflict:
    return Conflict("another user has this email address", field="email", code=EMAIL_EXISTS_CODE)
