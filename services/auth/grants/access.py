"""Permissions and grants of a user, for the gateway and other services.

A transaction reads a majority-committed snapshot, so the version matches the content and includes
every change that a caller has got a response for
(https://www.mongodb.com/docs/manual/reference/read-concern-snapshot/).
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
from services.auth.accounts.roles import SUPER_ADMIN_ROLE_NAME, Role

MAX_USER_GRANTS = 50_000
"""Maximum grants per response. As many of the longest ids fit into one NATS message."""
_ALL_FUNCTION_CODES = frozenset(Function)


@dataclass(frozen=True)
class AccessService:
    """Responds to `get_access` and `get_grants`."""

    mongo: Mongo
    accounts: Accounts
    """Account stores on the connection `mongo.direct`."""
    versions: AccessVersions

    async def get_access(self, user: UserRef) -> Access:
        """Return a user's permissions; raise `Unauthenticated` if deleted or disabled.

        Restores the tenant's version in Redis if it was lost.
        """
        tenant, stores = user.tenant, self.accounts

        async def read_access(session: Session) -> Access:
            roles = await self._list_roles(user, session)
            menu_ids = {menu for role in roles for menu in role.menus}
            settings = await stores.tenants.get_settings(tenant, session)
            return Access(
                version=await stores.tenants.get_access_version(tenant, session),
                functions=await stores.menus.list_function_codes(tenant, menu_ids, session)
                & _ALL_FUNCTION_CODES,
                super_admin=any(role.name == SUPER_ADMIN_ROLE_NAME for role in roles),
                viewers_may_command=settings is not None and settings.viewers_may_command,
            )

        access = await self.mongo.run_in_snapshot(read_access)
        await self.versions.raise_to(tenant, access.version)
        return access

    async def get_grants(self, user: UserRef) -> GrantedResources:
        """Return a user's grants; raise `Unauthenticated` if deleted or disabled.

        Raises `Conflict` if the user's roles together grant more than `MAX_USER_GRANTS` resources.
        """
        tenant, stores = user.tenant, self.accounts

        async def read_grants(session: Session) -> GrantedResources:
            roles = [role.id for role in await self._list_roles(user, session)]
            ids = await stores.grants.list_ids_by_type(tenant, roles, session)
            if sum(map(len, ids.values())) > MAX_USER_GRANTS:
                raise Conflict(
                    f"the roles of the user grant more than {MAX_USER_GRANTS} resources together; "
                    "grant their integrations or groups instead"
                )
            return GrantedResources(
                version=await stores.tenants.get_access_version(tenant, session),
                integrations=ids[ResourceType.INTEGRATION],
                devices=ids[ResourceType.DEVICE],
                groups=ids[ResourceType.DEVICE_GROUP],
                entities=ids[ResourceType.ENTITY],
                dashboards=ids[ResourceType.DASHBOARD],
                workflows=ids[ResourceType.WORKFLOW],
            )

        return await self.mongo.run_in_snapshot(read_grants)

    async def _list_roles(self, user: UserRef, session: Session) -> Collection[Role]:
        ids = await self.accounts.users.list_role_ids(
            user.tenant, user.user_id, session, only_if_enabled=True
        )
        if ids is None:
            raise Unauthenticated("the user is deleted or disabled")
        return (await self.accounts.roles.find(user.tenant, ids, session)).values()


def offer_access(rpc: RpcServer, access: AccessService) -> None:
    """Offer permissions and grants of users as `rpc.auth.…`."""
    rpc.offer("get_access", UserRef, access.get_access)
    rpc.offer("get_grants", UserRef, access.get_grants)
