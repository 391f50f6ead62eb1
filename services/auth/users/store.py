"""Users in MongoDB; every query names the tenant."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pymongo import ReturnDocument

from libs.common.errors import Conflict
from libs.common.store.mongo import Database, DuplicateKey, Session, containing, present
from services.auth.tenants.seed import SUPER_ADMIN
from services.auth.users.rules import email_key
from services.auth.users.schemas import StoredUser

EMAIL_EXISTS = "user_register_email_exist"
_NAMES = {
    "id": "_id",
    "tenant": "tenant",
    "email": "email",
    "nickname": "nickname",
    "password_hash": "passwordHash",
    "generation": "generation",
    "enabled": "enabled",
    "roles": "roles",
    "created_at": "createdAt",
    "updated_at": "updatedAt",
}


class UserStore:
    """The collection `users`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._users = database["users"]

    async def get(
        self, tenant: str, user_id: int, session: Session | None = None
    ) -> StoredUser | None:
        """One user of a tenant."""
        return _user(
            await self._users.find_one({"_id": user_id, "tenant": tenant}, session=session)
        )

    async def by_email(
        self, tenant: str, email: str, session: Session | None = None
    ) -> StoredUser | None:
        """The user with an e-mail address, in any case."""
        query = {"tenant": tenant, "emailKey": email_key(email)}
        return _user(await self._users.find_one(query, session=session))

    async def some(self, tenant: str, ids: Sequence[int], session: Session) -> list[StoredUser]:
        """Those of `ids` that are users of the tenant."""
        query = {"tenant": tenant, "_id": {"$in": list(ids)}}
        found = await self._users.find(query, session=session).to_list(None)
        return [user for document in found if (user := _user(document))]

    async def search(
        self, tenant: str, keyword: str, order: list[tuple[str, int]], skip: int, limit: int
    ) -> tuple[list[StoredUser], int]:
        """Users whose nickname or address contains `keyword`, and how many there are in all."""
        query: dict[str, Any] = {"tenant": tenant}
        if keyword:
            part = containing(keyword)
            query["$or"] = [{"nickname": part}, {"email": part}]
        found = self._users.find(query).sort(order).skip(skip).limit(limit)
        users = [user async for document in found if (user := _user(document))]
        return users, await self._users.count_documents(query)

    async def any(self, tenant: str, session: Session | None = None) -> bool:
        """Tell whether a tenant has a user."""
        found = await self._users.find_one({"tenant": tenant}, {"_id": 1}, session=session)
        return found is not None

    async def insert(self, user: StoredUser, session: Session) -> None:
        """Add a user; raise `Conflict` when the tenant has one with its address."""
        document = {stored: getattr(user, name) for name, stored in _NAMES.items()}
        document["emailKey"] = email_key(user.email)
        try:
            await self._users.insert_one(document, session=session)
        except DuplicateKey as error:
            raise _email_exists() from error

    async def update(
        self,
        user: StoredUser,
        session: Session,
        changes: Mapping[str, Any],
        *,
        ends_tokens: bool = False,
    ) -> StoredUser:
        """Change fields of a user, with `ends_tokens` into a new generation; return it after.

        Raises `Conflict` when another has its address.
        """
        fields = {_NAMES[name]: value for name, value in changes.items()}
        if "email" in changes:
            fields["emailKey"] = email_key(changes["email"])
        fields["updatedAt"] = datetime.now(UTC)
        try:
            document = await self._users.find_one_and_update(
                {"_id": user.id, "tenant": user.tenant},
                {"$set": fields, "$inc": {"generation": int(ends_tokens)}},
                return_document=ReturnDocument.AFTER,
                session=session,
            )
        except DuplicateKey as error:
            raise _email_exists() from error
        return _known(present(document))

    async def renew_hash(self, user: StoredUser, hashed: str, session: Session) -> None:
        """Keep another hash of the same password, unless the password has changed since."""
        query = {"_id": user.id, "tenant": user.tenant, "passwordHash": user.password_hash}
        await self._users.update_one(query, {"$set": {"passwordHash": hashed}}, session=session)

    async def delete(self, tenant: str, ids: Sequence[int], session: Session) -> None:
        """Remove users; their roles are in them."""
        query = {"tenant": tenant, "_id": {"$in": list(ids)}}
        await self._users.delete_many(query, session=session)

    async def super_admin_role(self, tenant: str, session: Session | None = None) -> int | None:
        """The id of a tenant's role `super_admin`, None when there is no such tenant."""
        query = {"tenant": tenant, "name": SUPER_ADMIN}
        role = await self._database["roles"].find_one(query, {"_id": 1}, session=session)
        return None if role is None else int(role["_id"])

    async def has_super_admin(self, tenant: str, session: Session) -> bool:
        """Tell whether a tenant has an enabled super-admin."""
        role = await self.super_admin_role(tenant, session)
        query = {"tenant": tenant, "roles": role, "enabled": True}
        return await self._users.find_one(query, {"_id": 1}, session=session) is not None


def _user(document: dict[str, Any] | None) -> StoredUser | None:
    return None if document is None else _known(document)


def _known(document: dict[str, Any]) -> StoredUser:
    fields = {name: document[stored] for name, stored in _NAMES.items()}
    return StoredUser(**(fields | {"roles": tuple(fields["roles"])}))


def _email_exists() -> Conflict:
    return Conflict("another user has this e-mail address", field="email", code=EMAIL_EXISTS)
