"""`/audit`: who changed what, for super-admins."""

from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import HttpRequest
from libs.common.http.console import Answer, Page, answer, post
from libs.common.http.guards import super_admins
from libs.common.http.request import caller_of
from services.auth.audit.schemas import AuditSearch, ShownEntry
from services.auth.audit.service import AuditService


@post("/audit/search", guards=[super_admins], tags=["Audit log"])
async def search_audit(
    request: HttpRequest, audit: NamedDependency[AuditService], data: JSONBody[AuditSearch]
) -> Answer[Page[ShownEntry]]:
    """Search the audit log; always a page, of 1000 entries at most."""
    return answer(request, await audit.search(caller_of(request), data))
