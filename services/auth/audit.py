"""The append-only audit log: entries, store and search.

`audit`: `{_id, tenant, at, actor: {kind, id, name}, action, object: {type, id, name}, address,
requestId, before, after}`. Empty fields are absent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import msgspec
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.clock import from_ms, to_ms
from libs.common.contracts.events import AccountChanged
from libs.common.errors import InvalidInput
from libs.common.http import RequestPrincipal
from libs.common.http.console import Page, PageRequest, ResponseModel, post
from libs.common.http.guards import super_admins
from libs.common.http.ids import NamedId
from libs.common.store.mongo import Database, Session, build_text_condition, find_page

MAX_ENTRIES_PER_PAGE = 1000
"""Maximum entries per page, because the log can be very large."""

FilterText = Annotated[str, msgspec.Meta(max_length=255)]
Timestamp = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]
"""Unix time in ms, up to the end of the year 9999."""


class AuditTarget(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The changed object of an audit entry, such as a `user`, `role` or `session`."""

    type: str
    id: str
    name: str = ""


class AuditEntry(msgspec.Struct, frozen=True):
    """An audit entry of one change. `before` and `after` never contain secrets."""

    action: str
    """`created`, `updated`, `deleted`, `password_changed`, …"""
    target: AuditTarget
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class AuditSearch(PageRequest):
    """Body of `POST /audit/search`. An entry must match all given fields."""

    largest: ClassVar[int] = MAX_ENTRIES_PER_PAGE

    keyword: FilterText | None = None
    """Part of the name of the actor or object, ignoring case."""
    action: FilterText | None = None
    """Name of the action."""
    object_type: FilterText | None = None
    """Type of the changed object, for example `role`."""
    object_id: NamedId | None = None
    """Id of the changed object."""
    actor_id: NamedId | None = None
    """Id of the user or application that made the change."""
    address: FilterText | None = None
    """IP address of the request."""
    request_id: FilterText | None = None
    start_timestamp: Timestamp | None = None
    """Earliest Unix time in ms. This time and `end_timestamp` are inclusive."""
    end_timestamp: Timestamp | None = None

    def require_ordered_times(self) -> None:
        """Raise `InvalidInput` if `start_timestamp` is after `end_timestamp`."""
        start, end = self.start_timestamp, self.end_timestamp
        if start is not None and end is not None and start > end:
            raise InvalidInput("must not be after `end_timestamp`", field="start_timestamp")


class AuditActor(msgspec.Struct, omit_defaults=True):
    """The actor: a user, an application, or the operator (user `0`)."""

    kind: str
    """`user` or `application`."""
    id: str
    name: str = ""


class AuditObject(msgspec.Struct, omit_defaults=True):
    """The changed object."""

    type: str
    """Type of the object, for example `role`."""
    id: str
    name: str = ""


class AuditEntryResponse(ResponseModel):
    """An entry of the audit log."""

    id: str
    created_at: int
    """Unix time in ms."""
    actor: AuditActor
    """User or application that made the change."""
    action: str
    """Name of the action."""
    object: AuditObject
    """The changed object."""
    address: str = ""
    """IP address of the request. Absent for commands of the operator."""
    request_id: str = ""
    before: dict[str, Any] | None = None
    """Changed fields with their old values. Secrets are hidden."""
    after: dict[str, Any] | None = None
    """Changed fields with their new values. Secrets are hidden."""


_QUERY_FIELD_BY_FILTER = {
    "action": "action",
    "object_type": "object.type",
    "object_id": "object.id",
    "actor_id": "actor.id",
    "address": "address",
    "request_id": "requestId",
}
SORT_FIELD_BY_COLUMN = {
    "created_at": "at",
    "action": "action",
    "actor_name": "actor.name",
    "object_type": "object.type",
    "object_name": "object.name",
    "address": "address",
}
"""Stored field by the name of a sortable column."""
_NEWEST_FIRST = (("at", -1), ("_id", -1))


class AuditStore:
    """The collection `audit`."""

    def __init__(self, database: Database) -> None:
        self._audit = database["audit"]

    async def add_events(self, events: Sequence[AccountChanged], session: Session) -> None:
        """Insert one entry per event in the caller's transaction."""
        if events:
            await self._audit.insert_many(list(map(_build_document, events)), session=session)

    async def search(
        self, tenant: str, request: AuditSearch
    ) -> tuple[list[AuditEntryResponse], int]:
        """Return one page of a tenant's entries and the number of all matches."""
        query, order = (
            _build_query(tenant, request),
            request.order(SORT_FIELD_BY_COLUMN, _NEWEST_FIRST),
        )
        skip = (request.number - 1) * request.size
        rows, total = await find_page(self._audit, query, order, skip, request.size)
        return list(map(_build_entry, rows)), total


def _build_query(tenant: str, request: AuditSearch) -> dict[str, Any]:
    query: dict[str, Any] = {"tenant": tenant}
    for name, stored in _QUERY_FIELD_BY_FILTER.items():
        value = getattr(request, name)
        if value not in {None, ""}:
            query[stored] = str(value)
    bounds = {"$gte": request.start_timestamp, "$lte": request.end_timestamp}
    at = {name: from_ms(value) for name, value in bounds.items() if value is not None}
    if at:
        query["at"] = at
    if request.keyword:
        part = build_text_condition(request.keyword)
        query["$or"] = [{"actor.name": part}, {"object.name": part}]
    return query


def _build_document(event: AccountChanged) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(event)
    document["_id"] = document.pop("eventId")
    document["at"] = from_ms(document.pop("createdAt"))
    return document


def _build_entry(document: dict[str, Any]) -> AuditEntryResponse:
    names = {
        "id": document["_id"],
        "created_at": to_ms(document["at"]),
        "request_id": document.get("requestId", ""),
    }
    return msgspec.convert(document | names, AuditEntryResponse)


@dataclass(frozen=True)
class AuditHandlerDependencies:
    """Dependencies of the search of the audit log."""

    audit: AuditStore


@post("/audit/search", guards=[super_admins], tags=["Audit log"])
async def search_audit(
    principal: RequestPrincipal, audit: NamedDependency[AuditStore], data: JSONBody[AuditSearch]
) -> Page[AuditEntryResponse]:
    """Search the audit log, newest first by default, in pages of up to 1000 entries."""
    data.require_ordered_times()
    rows, total = await audit.search(principal.tenant, data)
    return Page(page_size=data.size, page_number=data.number, total=total, content=rows)
