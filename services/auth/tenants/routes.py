"""One's own use and limits: for applications, and for the super-admins of a tenant."""

from litestar.di import NamedDependency

from libs.common.http import Requester, open_api
from libs.common.http.console import get
from libs.common.http.guards import applications, super_admins
from services.auth.tenants.limits import TenantLimitsService
from services.auth.tenants.schemas import TenantUse

Limits = NamedDependency[TenantLimitsService]


@open_api.get("/device/openapi/v1/limits", guards=[applications], tags=["Limits"])
async def get_limits(principal: Requester, limits: Limits) -> TenantUse:
    """Get the limits of the application and its tenant, and what is used of them."""
    return await limits.use(principal)


@get("/tenant/limits", guards=[super_admins], tags=["Limits"])
async def get_tenant_limits(principal: Requester, limits: Limits) -> TenantUse:
    """Get the limits of the tenant and of the caller, and what is used of them."""
    return await limits.use(principal)


ROUTES = (get_limits, get_tenant_limits)
