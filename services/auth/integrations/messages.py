"""What the operator asks about the logins of integrations: `rpc.auth.…`."""

from libs.common.bus import RpcServer
from libs.common.contracts.auth import (
    Done,
    IntegrationRef,
    IntegrationSecret,
    ListIntegrationLogins,
)
from libs.common.contracts.auth import IntegrationLogins as Listed
from services.auth.changes import operator
from services.auth.integrations.service import IntegrationLogins
from services.auth.tenants.seed import DEFAULT_TENANT


def offer_integration_logins(rpc: RpcServer, service: IntegrationLogins) -> None:
    """Offer the operations on logins; they are kept in the audit log of the default tenant."""
    caller = operator(DEFAULT_TENANT)

    async def create(wanted: IntegrationRef) -> IntegrationSecret:
        return await service.create(caller, wanted.integration)

    async def every(_: ListIntegrationLogins) -> Listed:
        return Listed([login.listed for login in await service.all()])

    async def rotate(wanted: IntegrationRef) -> IntegrationSecret:
        return await service.rotate(caller, wanted.integration)

    async def delete(wanted: IntegrationRef) -> Done:
        await service.delete(caller, wanted.integration)
        return Done()

    rpc.offer("create_integration_login", IntegrationRef, create)
    rpc.offer("list_integration_logins", ListIntegrationLogins, every)
    rpc.offer("rotate_integration_secret", IntegrationRef, rotate)
    rpc.offer("delete_integration_login", IntegrationRef, delete)
