"""What the operator asks about the logins of integrations: `rpc.auth.…`."""

from libs.common.bus import RpcServer
from libs.common.contracts.auth import IntegrationRef, ListIntegrationLogins
from services.auth.integrations.service import IntegrationLoginService


def offer_integration_logins(rpc: RpcServer, service: IntegrationLoginService) -> None:
    """Offer the operations on logins."""
    rpc.offer("create_integration_login", IntegrationRef, service.create)
    rpc.offer("list_integration_logins", ListIntegrationLogins, service.all)
    rpc.offer("rotate_integration_secret", IntegrationRef, service.rotate)
    rpc.offer("delete_integration_login", IntegrationRef, service.delete)
