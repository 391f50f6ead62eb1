"""Credentials in MongoDB.

`credentials`: `{_id, tenant, type, accessKey, sealed, createdAt, updatedAt}`. Tenant, type and
access key are unique together. `sealed` is the JSON of secret, description and additional data,
encrypted in the context of these three (`seal_context`).
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from libs.common.errors import Conflict
from libs.common.http.console import PageRequest
from libs.common.identity.seal import Seal
from libs.common.store.mongo import Database, Document, find_page, raise_on_duplicate


class CredentialsType(StrEnum):
    """The purpose of a credential."""

    SMTP = "SMTP"
    """The tenant's mail server; the secret is the password."""
    MQTT = "MQTT"
    """Login of external MQTT clients, for flows that start with a message."""
    HTTP = "HTTP"
    """Login of external HTTP clients, for flows that start with a request."""


class Credential(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A credential with its decrypted fields."""

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


class _SealedFields(NamedTuple):
    secret: str
    description: str | None
    data: dict[str, Any] | None


class CredentialStore:
    """The collection `credentials`; `key` (32 bytes, base64url) encrypts fields."""

    def __init__(self, database: Database, key: str) -> None:
        self._credentials = database["credentials"]
        self._seal = Seal(key)

    async def insert(self, credential: Credential) -> None:
        """Add a credential; raise `Conflict` for a duplicate type and access key."""
        text = f"access key `{credential.access_key}` exists already"
        with raise_on_duplicate(Conflict(text, field="access_key")):
            await self._credentials.insert_one(self._document(credential))

    async def replace(self, credential: Credential) -> None:
        """Replace a credential if it still exists."""
        key = {"_id": credential.id, "tenant": credential.tenant}
        await self._credentials.replace_one(key, self._document(credential))

    async def get(self, tenant: str, credential_id: int) -> Credential | None:
        """Return one credential of a tenant."""
        return self._read(
            await self._credentials.find_one({"_id": credential_id, "tenant": tenant})
        )

    async def find(self, tenant: str, kind: CredentialsType, access_key: str) -> Credential | None:
        """Return the credential with a type and access key."""
        query = {"tenant": tenant, "type": kind.value, "accessKey": access_key}
        return self._read(await self._credentials.find_one(query))

    async def list(
        self, tenant: str, kind: CredentialsType | None, request: PageRequest
    ) -> tuple[list[Credential], int]:
        """Return one page of the credentials, newest first, and the number of all matches.

        With `kind`, only credentials of this type match.
        """
        query: Document = {"tenant": tenant, **({"type": kind.value} if kind else {})}
        rows, total = await find_page(
            self._credentials, query, [("_id", -1)], request.skip, request.size
        )
        return [read for document in rows if (read := self._read(document))], total

    async def count(self, tenant: str) -> int:
        """Return the number of credentials of a tenant."""
        return await self._credentials.count_documents({"tenant": tenant})

    async def remove(self, tenant: str, ids: Sequence[int]) -> None:
        """Delete credentials, ignoring unknown ids."""
        await self._credentials.delete_many({"_id": {"$in": list(ids)}, "tenant": tenant})

    def _document(self, credential: Credential) -> Document:
        document: Document = msgspec.to_builtins(credential, builtin_types=(datetime,))
        fields = _SealedFields(*(document.pop(name) for name in _SealedFields._fields))
        text = msgspec.json.encode(fields).decode()
        return document | {"sealed": self._seal.seal(text, seal_context(document))}

    def _read(self, document: Document | None) -> Credential | None:
        if document is None:
            return None
        text = self._seal.open(document["sealed"], seal_context(document))
        fields = msgspec.json.decode(text, type=_SealedFields)
        return msgspec.convert(document | fields._asdict(), Credential)


def seal_context(document: Document) -> str:
    """Return the encryption context of a credential."""
    return f"{document['type']} {document['accessKey']} of {document['tenant']}"
