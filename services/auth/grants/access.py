"""What a user may do and see, as the gateway and the services ask for it.

A transaction reads everything at one point in time that is committed by a majority, so the
version belongs to exactly the content it is read with, and what was answered to a caller is in
it (https://www.mongodb.com/docs/manual/reference/read-concern-snapshot/).
"""

from collections.abc import Collection
from dataclasses import dataclass

from libs.common.bus import RpcServer
from libs.common.contracts.access import Access, GrantedResources, ResourceType, UserRef
from libs.common.errors import Conflict, Unauthenticated
from libs.common.identity.access import AccessVersions
from libs.common.identity.functions import Function
from libs.common.store.mongo import Mongo, Session
from services.auth.accounts import Accounts
from services.auth.accounts.roles import SUPER_ADMIN, Role

MOST_GRANTS = 50_000
"""Most grants of one answer: of the longest ids as many fit into a message of the bus."""
_FUNCTIONS = frozenset(Function)


@dataclass(frozen=True)
class AccessService:
    """Answers `get_access` and `get_grants`."""

    mongo: Mongo
    accounts: Accounts
    """The stores of `mongo.direct`."""
    versions: AccessVersions

    async def access(self, user: UserRef) -> Access:
        """A user's functions; raise `Unauthenticated` when it is gone or disabled.

        Restores the tenant's version where the next request looks it up, should it be lost.
        """
        tenant, stores = user.tenant, self.accounts

        async def read_access(session: Session) -> Access:
            roles = await self._roles(user, session)
            held = {menu for role in roles for menu in role.menus}
            settings = await stores.tenants.settings(tenant, session)
            return Access(
                version=await stores.tenants.version(tenant, session),
                functions=await stores.menus.codes(tenant, held, session) & _FUNCTIONS,
                super_admin=any(role.name == SUPER_ADMIN for role in roles),
                viewers_may_command=settings is not None and settings.viewers_may_command,
            )

        access = await self.mongo.at_one_moment(read_access)
        await self.versions.reach(tenant, access.version)
        return access

    async def grants(self, user: UserRef) -> GrantedResources:
        """A user's grants; raise `Unauthenticated` when it is gone or disabled.

        Raises `Conflict` when its roles together grant more than can be answered.
        """
        tenant, stores = user.tenant, self.accounts

        async def read_grants(session: Session) -> GrantedResources:
            roles = [role.id for role in await self._roles(user, session)]
            ids = await stores.grants.ids_by_type(tenant, roles, session)
            if sum(map(len, ids.values())) > MOST_GRANTS:
                raise Conflict(
                    f"the roles of the user grant more than {MOST_GRANTS} resources together; "
                    "grant their integrations or groups instead"
                )
            return GrantedResources(
                version=await stores.tenants.version(tenant, session),
                integrations=ids[ResourceType.INTEGRATION],
                devices=ids[ResourceType.DEVICE],
                groups=ids[ResourceType.DEVICE_GROUP],
                entities=ids[ResourceType.ENTITY],
                dashboards=ids[ResourceType.DASHBOARD],
                workflows=ids[ResourceType.WORKFLOW],
            )

        return await self.mongo.at_one_moment(read_grants)

    async def _roles(self, user: UserRef, session: Session) -> Collection[Role]:
        """The roles of a user that is there and enabled."""
        ids = await self.accounts.users.roles_of(user.tenant, user.user_id, session, enabled=True)
        if ids is None:
            raise Unauthenticated("the user is gone or disabled")
        return (await self.accounts.roles.find(user.tenant, ids, session)).values()


def offer_access(rpc: RpcServer, access: AccessService) -> None:
    """Offer what users may do and see as `rpc.auth.…`."""
    rpc.offer("get_access", UserRef, access.access)
    rpc.offer("get_grants", UserRef, access.grants)
