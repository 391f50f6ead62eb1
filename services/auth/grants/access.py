"""What a user may do and see, as the gateway and the services ask for it.

A transaction reads everything at one point in time that is committed by a majority, so the
version belongs to exactly the content it is read with, and what was answered to a caller is in
it (https://www.mongodb.com/docs/manual/reference/read-concern-snapshot/).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from libs.common.contracts.access import Access, GrantedResources, ResourceType, UserRef
from libs.common.errors import Conflict, Unauthenticated
from libs.common.identity.functions import Function
from libs.common.store.mongo import Mongo, Session
from services.auth.accounts import Accounts
from services.auth.accounts.roles import SUPER_ADMIN

MOST_GRANTS = 50_000
"""Most grants of one answer: of the longest ids as many fit into a message of the bus."""
_FUNCTIONS = frozenset(Function)


@dataclass(frozen=True, slots=True)
class HeldAccess:
    """A user's functions at a version."""

    version: int
    super_admin: bool
    codes: frozenset[str]
    """Of the FUNCTION menus of its roles."""
    viewers_may_command: bool = False
    """The tenant's setting."""


@dataclass(frozen=True, slots=True)
class HeldGrants:
    """A user's grants at a version, the union over its roles."""

    version: int
    ids: dict[ResourceType, frozenset[Any]]


class AccessSnapshots:
    """Reads what a user holds, all of one moment; None when it is gone or disabled."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._accounts = Accounts(mongo.direct)

    async def access(self, tenant: str, user_id: int) -> HeldAccess | None:
        """What a user may do."""
        stores = self._accounts

        async def work(session: Session) -> HeldAccess | None:
            ids = await stores.users.roles_of(tenant, user_id, session, enabled=True)
            if ids is None:
                return None
            roles = (await stores.roles.of_ids(tenant, ids, session)).values()
            held = {menu for role in roles for menu in role.menus}
            setting = await stores.tenants.command_setting(tenant, session)
            return HeldAccess(
                version=await stores.tenants.version(tenant, session),
                super_admin=any(role.name == SUPER_ADMIN for role in roles),
                codes=await stores.menus.codes(tenant, held, session),
                viewers_may_command=setting is not None and setting.viewers_may_command,
            )

        return await self._mongo.at_one_moment(work)

    async def grants(self, tenant: str, user_id: int) -> HeldGrants | None:
        """What a user's roles are granted."""
        stores = self._accounts

        async def work(session: Session) -> HeldGrants | None:
            ids = await stores.users.roles_of(tenant, user_id, session, enabled=True)
            if ids is None:
                return None
            roles = await stores.roles.of_ids(tenant, ids, session)
            granted = await stores.grants.of_roles(tenant, list(roles), session)
            return HeldGrants(await stores.tenants.version(tenant, session), granted)

        return await self._mongo.at_one_moment(work)


class AccessService:
    """Answers `get_access` and `get_grants`."""

    def __init__(
        self, snapshots: AccessSnapshots, reach: Callable[[str, int], Awaitable[None]]
    ) -> None:
        self._snapshots = snapshots
        self._reach = reach

    async def access(self, wanted: UserRef) -> Access:
        """A user's functions; raise `Unauthenticated` when it is gone or disabled.

        Restores the tenant's version where the next request looks it up, should it be lost.
        """
        held = await self._snapshots.access(wanted.tenant, wanted.user_id)
        if held is None:
            raise _gone()
        await self._reach(wanted.tenant, held.version)
        return Access(
            held.version, held.codes & _FUNCTIONS, held.super_admin, held.viewers_may_command
        )

    async def grants(self, wanted: UserRef) -> GrantedResources:
        """A user's grants; raise `Unauthenticated` when it is gone or disabled.

        Raises `Conflict` when its roles together grant more than can be answered.
        """
        held = await self._snapshots.grants(wanted.tenant, wanted.user_id)
        if held is None:
            raise _gone()
        if sum(map(len, held.ids.values())) > MOST_GRANTS:
            raise Conflict(
                f"the roles of the user grant more than {MOST_GRANTS} resources together; "
                "grant their integrations or groups instead"
            )
        return GrantedResources(
            version=held.version,
            integrations=held.ids[ResourceType.INTEGRATION],
            devices=held.ids[ResourceType.DEVICE],
            groups=held.ids[ResourceType.DEVICE_GROUP],
            entities=held.ids[ResourceType.ENTITY],
            dashboards=held.ids[ResourceType.DASHBOARD],
            workflows=held.ids[ResourceType.WORKFLOW],
        )


def _gone() -> Unauthenticated:
    return Unauthenticated("the user is gone or disabled")
