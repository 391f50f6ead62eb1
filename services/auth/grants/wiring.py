"""The construction of grants: operations of roles, questions of services, and removal."""

from dataclasses import dataclass

from libs.common.bus import BatchConsumer
from services.auth.accounts import Accounts
from services.auth.core import Core
from services.auth.grants.access import AccessService, offer_access
from services.auth.grants.console import GrantHandlers
from services.auth.grants.deleted_resources import GrantSweep, consumer_of_deletions
from services.auth.grants.listings import RoleListings
from services.auth.grants.owners import ResourceOwners
from services.auth.grants.service import GrantService, offer_grants
from services.auth.roles.service import RoleService


@dataclass(frozen=True)
class GrantParts:
    """What grants need of the process."""

    handlers: GrantHandlers
    sweep: GrantSweep
    deletions: BatchConsumer


def wire_grants(core: Core, *, roles: RoleService) -> GrantParts:
    """Construct grants, and offer their operations to other services."""
    owners = ResourceOwners(core.rpc)
    grants = GrantService(core.changes, roles, core.accounts, owners)
    access = AccessService(core.mongo, Accounts(core.mongo.direct), core.versions)
    offer_access(core.rpc_server, access)
    offer_grants(core.rpc_server, grants)
    return GrantParts(
        GrantHandlers(grants, RoleListings(roles, core.accounts, owners)),
        GrantSweep(grants),
        consumer_of_deletions(core.bus, grants),
    )
