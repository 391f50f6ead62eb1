"""Reads the audit log."""

from typing import Protocol

from libs.common.http.console import Page
from libs.common.identity import Caller
from services.auth.audit.schemas import AuditSearch, ShownEntry


class Store(Protocol):
    """Where entries are kept."""

    async def search(self, tenant: str, wanted: AuditSearch) -> tuple[list[ShownEntry], int]:
        """One page of a tenant's entries, and how many there are that fit."""


class AuditService:
    """What super-admins ask of the log of their tenant."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def search(self, caller: Caller, wanted: AuditSearch) -> Page[ShownEntry]:
        """Find entries, the newest first unless told otherwise; raise `InvalidInput`."""
        wanted.check()
        rows, total = await self._store.search(caller.principal.tenant, wanted)
        return Page(page_size=wanted.size, page_number=wanted.number, total=total, content=rows)
