"""The wiring of tenants, roles, menus and grants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from litestar.types import ControllerRouterHandler

from libs.common.bus import BatchConsumer, Bus, RpcClient, RpcServer
from libs.common.identity.access import AccessVersions
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Mongo
from services.auth.changes import Changes
from services.auth.grants.access import AccessService
from services.auth.grants.existing import Existing
from services.auth.grants.listings import Listings
from services.auth.grants.messages import consumer_of_deletions, offer_access, offer_grants
from services.auth.grants.owners import Owners
from services.auth.grants.routes import ROUTER as GRANT_ROUTES
from services.auth.grants.service import GrantService
from services.auth.grants.snapshot import AccessSnapshots
from services.auth.grants.store import GrantStore
from services.auth.grants.sweep import GrantSweep
from services.auth.menus.routes import ROUTER as MENU_ROUTES
from services.auth.menus.service import MenuService
from services.auth.menus.store import MenuStore
from services.auth.roles.members import MemberService
from services.auth.roles.people import RolePeople
from services.auth.roles.routes import ROUTER as ROLE_ROUTES
from services.auth.roles.service import RoleService
from services.auth.roles.store import RoleStore
from services.auth.tenants.limits import TenantLimitsService
from services.auth.tenants.messages import offer_tenants
from services.auth.tenants.seed import MENUS
from services.auth.tenants.service import TenantService
from services.auth.tenants.store import TenantStore

ROLE_BLOCK = 10
"""Ids of roles are taken rarely, and a restart wastes at most this many."""
MENU_BLOCK = len(MENUS)
"""A tenant's menus take one round trip."""


@dataclass(frozen=True, kw_only=True)
class Permissions:
    """What the service needs of these features."""

    tenants: TenantService
    deletions: BatchConsumer
    """Runs beside the service."""
    sweep: GrantSweep
    """Runs in one replica."""
    routes: Sequence[ControllerRouterHandler]
    dependencies: Mapping[str, Any]


def build_permissions(
    mongo: Mongo,
    bus: Bus,
    rpc: RpcServer,
    changes: Changes,
    versions: AccessVersions,
    limits: TenantLimitsService,
) -> Permissions:
    """Put the features together and offer their operations on `rpc`."""
    database = mongo.database
    next_role = IdAllocator(database, "roles", ROLE_BLOCK).take
    next_menu = IdAllocator(database, "menus", MENU_BLOCK).take
    menus, people, store = MenuStore(database), RolePeople(database), GrantStore(database)
    existing = Existing(RpcClient(bus))
    tenants = TenantService(changes, TenantStore(database), next_role, next_menu)
    roles = RoleService(changes, RoleStore(database), menus, next_role)
    grants = GrantService(changes, roles, store, existing)
    offer_tenants(rpc, tenants, limits)
    offer_access(rpc, AccessService(AccessSnapshots(mongo), versions.reach))
    offer_grants(rpc, grants)
    return Permissions(
        tenants=tenants,
        deletions=consumer_of_deletions(bus, grants),
        sweep=GrantSweep(store, existing, grants),
        routes=(ROLE_ROUTES, MENU_ROUTES, GRANT_ROUTES),
        dependencies={
            "menus": MenuService(changes, menus, next_menu),
            "roles": roles,
            "members": MemberService(changes, roles, people),
            "grants": grants,
            "listings": Listings(roles, store, Owners(RpcClient(bus)), people),
        },
    )
