"""`/audit`: who changed what, for super-admins."""

from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import Requester
from libs.common.http.console import Page, post
from libs.common.http.guards import super_admins
from services.auth.audit.schemas import AuditSearch, ShownEntry
from services.auth.audit.store import AuditStore


@post("/audit/search", guards=[super_admins], tags=["Audit log"])
async def search_audit(
    principal: Requester, audit: NamedDependency[AuditStore], data: JSONBody[AuditSearch]
) -> Page[ShownEntry]:
    """Search the audit log, the newest first; always a page, of 1000 entries at most."""
    data.check()
    rows, total = await audit.search(principal.tenant, data)
    return Page(page_size=data.size, page_number=data.number, total=total, content=rows)
