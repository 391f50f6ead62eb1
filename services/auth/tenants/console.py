"""The header that names a tenant, and the limits and settings of a tenant."""

from dataclasses import dataclass

from litestar.di import NamedDependency
from litestar.openapi.spec import OpenAPIType, Parameter, Schema
from litestar.params import JSONBody

from libs.common.errors import InvalidInput
from libs.common.http import RequestCaller, RequestPrincipal, open_api
from libs.common.http.console import get, put
from libs.common.http.guards import applications, super_admins
from libs.common.http.request import Connection
from services.auth.accounts.tenants import TENANT_PATTERN, TENANT_RULE_TEXT, TenantSettings
from services.auth.tenants.service import (
    ChangeTenantSettings,
    TenantLimitsService,
    TenantSettingsService,
    TenantUsage,
)

TENANT_HEADER = "TENANT_ID"


def read_tenant_header(connection: Connection) -> str | None:
    """Return the tenant in the header `TENANT_ID`, or None; raise `InvalidInput`."""
    tenant = connection.headers.get(TENANT_HEADER)
    if tenant and not TENANT_PATTERN.fullmatch(tenant):
        raise InvalidInput(TENANT_RULE_TEXT, field=TENANT_HEADER)
    return tenant or None


def build_tenant_parameter() -> Parameter:
    """Return the OpenAPI parameter of the header `TENANT_ID`."""
    return Parameter(
        name=TENANT_HEADER,
        param_in="header",
        required=False,
        schema=Schema(type=OpenAPIType.STRING, pattern=r"^[A-Za-z0-9_-]{1,64}$"),
        description="The tenant. Default: the tenant of the client, or `default`.",
    )


TenantLimitsServiceDependency = NamedDependency[TenantLimitsService]
TenantSettingsServiceDependency = NamedDependency[TenantSettingsService]


@dataclass(frozen=True)
class TenantHandlerDependencies:
    """Dependencies of the operations on limits and settings."""

    limits: TenantLimitsService
    tenant_settings: TenantSettingsService


@open_api.get("/device/openapi/v1/limits", guards=[applications], tags=["Limits"])
async def get_limits(
    principal: RequestPrincipal, limits: TenantLimitsServiceDependency
) -> TenantUsage:
    """Get the limits of the application and its tenant, with their usage."""
    return await limits.get_usage(principal)


@get("/tenant/limits", guards=[super_admins], tags=["Limits"])
async def get_tenant_limits(
    principal: RequestPrincipal, limits: TenantLimitsServiceDependency
) -> TenantUsage:
    """Get the limits of the tenant and of the caller, with their usage."""
    return await limits.get_usage(principal)


@get("/tenant/settings", guards=[super_admins], tags=["Tenant settings"])
async def get_tenant_settings(
    principal: RequestPrincipal, tenant_settings: TenantSettingsServiceDependency
) -> TenantSettings:
    """Get the settings of the tenant."""
    return await tenant_settings.get(principal.tenant)


@put(
    "/tenant/settings",
    guards=[super_admins],
    tags=["Tenant settings"],
    example={"viewers_may_command": False},
)
async def change_tenant_settings(
    caller: RequestCaller,
    tenant_settings: TenantSettingsServiceDependency,
    data: JSONBody[ChangeTenantSettings],
) -> TenantSettings:
    """Change the settings of the tenant, effective with each user's next request."""
    return await tenant_settings.change(caller, data)


ROUTES = (get_limits, get_tenant_limits, get_tenant_settings, change_tenant_settings)
