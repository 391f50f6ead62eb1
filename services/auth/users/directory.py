"""Questions about users that change nothing."""

from collections.abc import Sequence

from libs.common.errors import Unauthenticated
from libs.common.identity import Principal
from services.auth.menus.schemas import Menu
from services.auth.menus.store import MenuStore
from services.auth.menus.tree import tree
from services.auth.users.permissions import Permissions
from services.auth.users.schemas import (
    AskPermission,
    Profile,
    ShownUser,
    StoredUser,
    UserSearch,
)
from services.auth.users.service import unknown_user
from services.auth.users.store import UserStore
from services.auth.users.views import (
    HeldRoles,
    is_super_admin,
    milliseconds,
    open_menus,
    shown_roles,
    shown_user,
)

SORTS = {
    "user_id": "_id",
    "id": "_id",
    "email": "emailKey",
    "nickname": "nickname",
    "created_at": "createdAt",
    "enabled": "enabled",
}


class UserDirectory:
    """Users as others see them, and as they see themselves."""

    def __init__(
        self, store: UserStore, roles: HeldRoles, menus: MenuStore, permissions: Permissions
    ) -> None:
        self._store = store
        self._roles = roles
        self._menus = menus
        self._permissions = permissions

    async def search(self, tenant: str, wanted: UserSearch) -> tuple[list[ShownUser], int]:
        """Users of a tenant, and how many there are on all pages."""
        users, total = await self._store.search(
            tenant, wanted.keyword or "", wanted.order(SORTS), wanted.skip, wanted.limit
        )
        roles = await self._roles.of(tenant, users)
        return [shown_user(user, roles) for user in users], total

    async def profile(self, principal: Principal) -> Profile:
        """The user who asks; raise `Unauthenticated` when it is gone."""
        user = await self._store.get(principal.tenant, principal.user_id)
        if user is None:
            raise Unauthenticated("the user is gone")
        roles = await self._roles.of(user.tenant, [user])
        menus = open_menus(user, roles, await self._menus.all(user.tenant))
        super_admin = is_super_admin(user, roles)
        return Profile(
            tenant_id=user.tenant,
            user_id=str(user.id),
            nickname=user.nickname,
            email=user.email,
            created_at=milliseconds(user),
            roles=shown_roles(user, roles),
            menus=tree(menus),
            super_admin=super_admin,
            is_super_admin=super_admin,
        )

    async def menus(self, tenant: str, user_id: int) -> Sequence[Menu]:
        """The menus that are open to a user, with their parents; raise `NotFound`."""
        user = await self._known(tenant, user_id)
        roles = await self._roles.of(tenant, [user])
        return open_menus(user, roles, await self._menus.all(tenant))

    async def has_permission(self, tenant: str, user_id: int, asked: AskPermission) -> bool:
        """Tell whether a user has a resource; raise `NotFound`."""
        user = await self._known(tenant, user_id)
        roles = await self._roles.of(tenant, [user])
        return is_super_admin(user, roles) or await self._permissions.held(
            tenant, user.roles, asked.resource_type, str(asked.resource_id)
        )

    async def _known(self, tenant: str, user_id: int) -> StoredUser:
        user = await self._store.get(tenant, user_id)
        if user is None:
            raise unknown_user(user_id)
        return user
