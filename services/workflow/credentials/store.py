"""Credentials in MongoDB: `credentials`.

`{_id, tenant, type, accessKey, sealed, createdAt, updatedAt}`; `sealed` is the JSON of secret,
description and additional data, encrypted for this tenant, type and access key (`context_of`), of
which there is one credential.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from libs.common.errors import Conflict
from libs.common.http.console import PageRequest
from libs.common.identity.seal import Seal
from libs.common.store.mongo import Database, Document, DuplicateKey


class CredentialsType(StrEnum):
    """What a credential is for."""

    SMTP = "SMTP"
    """The tenant's mail server; the secret is the password of its user there."""
    MQTT = "MQTT"
    """MQTT clients outside sign in with it, for flows that begin with a message."""
    HTTP = "HTTP"
    """HTTP clients outside sign in with it, for flows that begin with a request."""


class Credential(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A credential as it is kept, opened."""

    id: int = msgspec.field(name="_id")
    tenant: str
    type: CredentialsType
    access_key: str
    created_at: datetime
    updated_at: datetime
    secret: str = ""
    description: str | None = None
    data: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"Credential({self.id}, {self.access_key})"


class _Kept(NamedTuple):
    secret: str
    description: str | None
    data: dict[str, Any] | None


class CredentialStore:
    """The credentials of all tenants; `key` (32 bytes, base64url) seals them."""

    def __init__(self, database: Database, key: str) -> None:
        self._credentials = database["credentials"]
        self._seal = Seal(key)

    async def insert(self, one: Credential) -> None:
        """Add a credential; raise `Conflict` when there is one of its type and access key."""
        try:
            await self._credentials.insert_one(self._document(one))
        except DuplicateKey as error:
            text = f"there is a credential {one.access_key} already"
            raise Conflict(text, field="access_key") from error

    async def replace(self, one: Credential) -> None:
        """Set what there is under the id; nothing when it is gone."""
        key = {"_id": one.id, "tenant": one.tenant}
        await self._credentials.replace_one(key, self._document(one))

    async def get(self, tenant: str, credential_id: int) -> Credential | None:
        """A credential of a tenant."""
        return self._read(
            await self._credentials.find_one({"_id": credential_id, "tenant": tenant})
        )

    async def find(self, tenant: str, kind: CredentialsType, access_key: str) -> Credential | None:
        """The credential of a type and an access key."""
        query = {"tenant": tenant, "type": kind.value, "accessKey": access_key}
        return self._read(await self._credentials.find_one(query))

    async def list(
        self, tenant: str, kind: CredentialsType | None, wanted: PageRequest
    ) -> tuple[list[Credential], int]:
        """A page of them, the newest first, and how many there are."""
        query: Document = {"tenant": tenant, **({"type": kind.value} if kind else {})}
        total = await self._credentials.count_documents(query)
        found = self._credentials.find(
            query, sort=[("_id", -1)], skip=wanted.skip, limit=wanted.size
        )
        return [one async for document in found if (one := self._read(document))], total

    async def count(self, tenant: str) -> int:
        """How many a tenant has."""
        return await self._credentials.count_documents({"tenant": tenant})

    async def remove(self, tenant: str, ids: Sequence[int]) -> None:
        """Delete credentials; unknown ones are passed over."""
        await self._credentials.delete_many({"_id": {"$in": list(ids)}, "tenant": tenant})

    def _document(self, one: Credential) -> Document:
        document: Document = msgspec.to_builtins(one, builtin_types=(datetime,))
        kept = _Kept(*(document.pop(name) for name in _Kept._fields))
        text = msgspec.json.encode(kept).decode()
        return document | {"sealed": self._seal.seal(text, context_of(document))}

    def _read(self, document: Document | None) -> Credential | None:
        if document is None:
            return None
        text = self._seal.open(document["sealed"], context_of(document))
        kept = msgspec.json.decode(text, type=_Kept)
        return msgspec.convert(document | kept._asdict(), Credential)


def context_of(document: Document) -> str:
    """What a credential is sealed for."""
    return f"{document['type']} {document['accessKey']} of {document['tenant']}"


async def create_indexes(database: Database) -> None:
    """Make what the queries above need."""
    await database["credentials"].create_index(
        [("tenant", 1), ("type", 1), ("accessKey", 1)], unique=True
    )
