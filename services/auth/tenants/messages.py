"""What the operator asks about tenants."""

from libs.common.bus import RpcServer
from libs.common.contracts.tenants import CreateTenant, ListTenants
from services.auth.tenants.service import TenantService


def offer_tenants(rpc: RpcServer, service: TenantService) -> None:
    """Offer the operations on tenants as `rpc.auth.…`."""
    rpc.offer("create_tenant", CreateTenant, service.create)
    rpc.offer("list_tenants", ListTenants, service.list)
