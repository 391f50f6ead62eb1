"""One's own use and limits: for applications, and for the super-admins of a tenant."""

import litestar
from litestar.di import NamedDependency

from libs.common.envelope import Success
from libs.common.http import REFUSALS, HttpRequest, ok
from libs.common.http.console import Answer, answer, get
from libs.common.http.guards import applications, super_admins
from libs.common.http.request import principal_of
from services.auth.use.schemas import TenantUse
from services.auth.use.service import UseService


@litestar.get(
    "/device/openapi/v1/limits", guards=[applications], tags=["Limits"], responses=REFUSALS
)
async def get_limits(request: HttpRequest, use: NamedDependency[UseService]) -> Success[TenantUse]:
    """Get the limits of the application and its tenant, and what is used of them."""
    return ok(request, await use.of(principal_of(request)))


@get("/tenant/limits", guards=[super_admins], tags=["Limits"])
async def get_tenant_limits(
    request: HttpRequest, use: NamedDependency[UseService]
) -> Answer[TenantUse]:
    """Get the limits of the tenant and of the caller, and what is used of them."""
    return answer(request, await use.of(principal_of(request)))


ROUTES = (get_limits, get_tenant_limits)
