"""What the operator asks about tenants, and services about their limits."""

from libs.common.bus import RpcServer
from libs.common.contracts.auth import CreateTenant, ListTenants
from libs.common.contracts.limits import GetLimits, SetLimits
from services.auth.tenants.limits import TenantLimitsService
from services.auth.tenants.service import TenantService


def offer_tenants(rpc: RpcServer, service: TenantService, limits: TenantLimitsService) -> None:
    """Offer the operations on tenants as `rpc.auth.…`."""
    rpc.offer("create_tenant", CreateTenant, service.create)
    rpc.offer("list_tenants", ListTenants, service.list)
    rpc.offer("get_limits", GetLimits, limits.get)
    rpc.offer("set_limits", SetLimits, limits.set)
