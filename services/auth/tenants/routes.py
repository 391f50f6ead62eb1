"""A tenant: its limits with their use, and the settings that its super-admins change."""

from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.http import HttpRequest, Requester, open_api
from libs.common.http.console import get, put
from libs.common.http.guards import applications, super_admins
from libs.common.http.request import caller_of
from services.auth.tenants.limits import TenantLimitsService
from services.auth.tenants.schemas import ChangeTenantSettings, TenantSettings, TenantUse
from services.auth.tenants.settings import TenantSettingsService

Limits = NamedDependency[TenantLimitsService]
Settings = NamedDependency[TenantSettingsService]


@open_api.get("/device/openapi/v1/limits", guards=[applications], tags=["Limits"])
async def get_limits(principal: Requester, limits: Limits) -> TenantUse:
    """Get the limits of the application and its tenant, and what is used of them."""
    return await limits.use(principal)


@get("/tenant/limits", guards=[super_admins], tags=["Limits"])
async def get_tenant_limits(principal: Requester, limits: Limits) -> TenantUse:
    """Get the limits of the tenant and of the caller, and what is used of them."""
    return await limits.use(principal)


@get("/tenant/settings", guards=[super_admins], tags=["Tenant settings"])
async def get_tenant_settings(principal: Requester, tenant_settings: Settings) -> TenantSettings:
    """Get the settings of the tenant."""
    return await tenant_settings.get(principal.tenant)


@put(
    "/tenant/settings",
    guards=[super_admins],
    tags=["Tenant settings"],
    example={"viewers_may_command": False},
)
async def change_tenant_settings(
    request: HttpRequest, tenant_settings: Settings, data: JSONBody[ChangeTenantSettings]
) -> TenantSettings:
    """Change the settings of the tenant; they apply to the next request of every user."""
    return await tenant_settings.change(caller_of(request), data)


ROUTES = (get_limits, get_tenant_limits, get_tenant_settings, change_tenant_settings)
