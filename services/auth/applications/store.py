"""Applications in MongoDB."""

from datetime import datetime

import msgspec

from libs.common.errors import Conflict
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import (
    Database,
    Document,
    Session,
    build_text_condition,
    find_page,
    raise_on_duplicate,
)
from services.auth.accounts.users import ID_BLOCK_SIZE
from services.auth.applications.model import ApplicationSearch, StoredApplication

SORT_FIELD_BY_COLUMN = {
    "application_id": "_id",
    "name": "name",
    "client_id": "clientId",
    "events": "events",
    "created_at": "createdAt",
}
"""Stored field by the name of a sortable column."""


class ApplicationStore:
    """The collection `applications`."""

    def __init__(self, database: Database) -> None:
        self._applications = database["applications"]
        self.next_id = IdAllocator(database, "applications", ID_BLOCK_SIZE).allocate

    async def add(self, application: StoredApplication, session: Session) -> None:
        """Add an application; raise `Conflict` if the tenant has one with that name."""
        with raise_on_duplicate(_duplicate_name_error(application)):
            await self._applications.insert_one(_build_document(application), session=session)

    async def get(
        self, application_id: int, tenant: str, session: Session | None = None
    ) -> StoredApplication | None:
        """Return one application of a tenant, or None."""
        query = {"_id": application_id, "tenant": tenant}
        document = await self._applications.find_one(query, session=session)
        return msgspec.convert(document, StoredApplication | None)

    async def find_by_id(self, application_id: int) -> StoredApplication | None:
        """Return one application of any tenant, or None."""
        document = await self._applications.find_one({"_id": application_id})
        return msgspec.convert(document, StoredApplication | None)

    async def find_by_client_id(self, client_id: str) -> StoredApplication | None:
        """Return the application with a client id, of any tenant, or None."""
        document = await self._applications.find_one({"clientId": client_id})
        return msgspec.convert(document, StoredApplication | None)

    async def list_all(self, tenant: str) -> list[StoredApplication]:
        """Return all applications of a tenant, sorted by name."""
        documents = await self._applications.find({"tenant": tenant}).sort("name", 1).to_list(None)
        return msgspec.convert(documents, list[StoredApplication])

    async def list_event_reading_tenants(self) -> list[str]:
        """Return the tenants with applications that may read events."""
        return sorted(await self._applications.distinct("tenant", {"events": True}))

    async def search(
        self, tenant: str, request: ApplicationSearch
    ) -> tuple[list[StoredApplication], int]:
        """Return one page of the matching applications and the number of all matches."""
        query: Document = {"tenant": tenant}
        if request.keyword:
            part = build_text_condition(request.keyword)
            query["$or"] = [{"name": part}, {"clientId": part}]
        rows, total = await find_page(
            self._applications,
            query,
            request.order(SORT_FIELD_BY_COLUMN),
            request.skip,
            request.limit,
        )
        return msgspec.convert(rows, list[StoredApplication]), total

    async def replace(self, application: StoredApplication, session: Session) -> None:
        """Replace an application; raise `Conflict` if its name is in use."""
        with raise_on_duplicate(_duplicate_name_error(application)):
            await self._applications.replace_one(
                {"_id": application.id, "tenant": application.tenant},
                _build_document(application),
                session=session,
            )

    async def remove(self, application: StoredApplication, session: Session) -> None:
        """Delete an application."""
        query = {"_id": application.id, "tenant": application.tenant}
        await self._applications.delete_one(query, session=session)


def _duplicate_name_error(application: StoredApplication) -> Conflict:
    return Conflict(
        f"another application has the name `{application.name}`",
        field="name",
        code="name_repeated",
    )


def _build_document(application: StoredApplication) -> Document:
    document: Document = msgspec.to_builtins(application, builtin_types=(datetime,))
    return document
