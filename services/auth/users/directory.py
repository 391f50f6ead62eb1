"""Questions about users that change nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from libs.common.clock import to_ms
from libs.common.contracts.access import ResourceType
from libs.common.contracts.entities import ResolvedEntity
from libs.common.contracts.names import DescribedDevice
from libs.common.device_client import DeviceClient
from libs.common.errors import Unauthenticated
from libs.common.http.ids import parse_id
from libs.common.identity import Principal
from libs.common.things import SYSTEM
from services.auth.accounts import Accounts
from services.auth.accounts.grants import Resource
from services.auth.accounts.roles import SUPER_ADMIN, Menu, Role
from services.auth.accounts.users import StoredUser
from services.auth.menus import tree, visible_to, with_ancestors
from services.auth.users.schemas import AskPermission, Profile, RoleName, ShownUser, UserSearch
from services.auth.users.service import unknown_user

ANYBODY = Resource(ResourceType.INTEGRATION, SYSTEM)
"""What everybody sees: custom entities."""

Roles = Mapping[int, Role]
"""Roles by id; a user may have an id whose role was deleted a moment ago."""


@dataclass(frozen=True)
class UserDirectory:
    """Users as others see them, and as they see themselves."""

    accounts: Accounts
    devices: DeviceClient
    """Asked where a device belongs."""

    async def search(self, tenant: str, wanted: UserSearch) -> tuple[list[ShownUser], int]:
        """Users of a tenant, and how many there are on all pages."""
        users, total = await self.accounts.users.search(tenant, wanted.keyword or "", wanted)
        roles = await self._roles_of(tenant, users)
        return [_shown_user(user, roles) for user in users], total

    async def profile(self, principal: Principal) -> Profile:
        """The user who asks; raise `Unauthenticated` when it is gone."""
        user = await self.accounts.users.get(principal.tenant, principal.user_id)
        if user is None:
            raise Unauthenticated("the user is gone")
        roles = await self._roles_of(user.tenant, [user])
        super_admin = _is_super_admin(user, roles)
        return Profile(
            tenant_id=user.tenant,
            user_id=str(user.id),
            nickname=user.nickname,
            email=user.email,
            created_at=str(to_ms(user.created_at)),
            roles=_shown_roles(user, roles),
            menus=tree(await self._open_menus(principal, user, roles)),
            super_admin=super_admin,
            is_super_admin=super_admin,
            may_command=principal.may_command,
        )

    async def menus(self, caller: Principal, user_id: int) -> Sequence[Menu]:
        """The menus that are open to a user, with their parents; raise `NotFound`."""
        user = await self._known(caller.tenant, user_id)
        return await self._open_menus(caller, user, await self._roles_of(caller.tenant, [user]))

    async def has_permission(self, tenant: str, user_id: int, asked: AskPermission) -> bool:
        """Tell whether a user may read a resource: by itself or by what it belongs to.

        Raises `NotFound`, and `Unavailable` when `device` is needed and silent.
        """
        user = await self._known(tenant, user_id)
        kind, sent = asked.resource_type, asked.resource_id
        named = kind is ResourceType.INTEGRATION
        resource = str(sent) if named else parse_id(sent, "resource_id")
        if _is_super_admin(user, await self._roles_of(tenant, [user])):
            return True
        if await self.accounts.grants.held(tenant, user.roles, kind, resource):
            return True
        if isinstance(resource, str):
            return False
        owners = await self._owners(tenant, kind, resource)
        return ANYBODY in owners or any(
            [
                await self.accounts.grants.held(tenant, user.roles, one.type, one.id)
                for one in owners
            ]
        )

    async def _owners(self, tenant: str, kind: ResourceType, number: int) -> list[Resource]:
        """What a resource is shown by besides itself, as far as there is such a resource."""
        if kind is ResourceType.DEVICE:
            found = await self.devices.describe_devices(tenant, [number])
            return [owner for one in found for owner in _owners_of(one)]
        if kind is not ResourceType.ENTITY:
            return []
        entities = await self.devices.resolve(tenant, ids=[number])
        owners = [owner for one in entities for owner in _owners_of(one)]
        owners += [Resource(ResourceType.DEVICE, one.thing_id) for one in entities if one.device]
        return owners

    async def _known(self, tenant: str, user_id: int) -> StoredUser:
        user = await self.accounts.users.get(tenant, user_id)
        if user is None:
            raise unknown_user(user_id)
        return user

    async def _roles_of(self, tenant: str, users: Iterable[StoredUser]) -> Roles:
        return await self.accounts.roles.find(
            tenant, {role for user in users for role in user.roles}
        )

    async def _open_menus(
        self, caller: Principal, user: StoredUser, roles: Roles
    ) -> Sequence[Menu]:
        """What a user's roles open, with the pages that lead there; all for a super-admin.

        Menus that the caller's console does not know are left out.
        """
        menus = visible_to(caller, await self.accounts.menus.all(user.tenant))
        if _is_super_admin(user, roles):
            return menus
        return with_ancestors(menus, [menu for role in _held(user, roles) for menu in role.menus])


def _owners_of(one: DescribedDevice | ResolvedEntity) -> list[Resource]:
    """The integration, and the group of the device when it is in one."""
    owners = [Resource(ResourceType.INTEGRATION, one.integration)]
    if one.group is not None:
        owners.append(Resource(ResourceType.DEVICE_GROUP, one.group))
    return owners


def _shown_user(user: StoredUser, roles: Roles) -> ShownUser:
    return ShownUser.from_fields(
        user, tenant_id=user.tenant, user_id=str(user.id), roles=_shown_roles(user, roles)
    )


def _shown_roles(user: StoredUser, roles: Roles) -> list[RoleName]:
    return [RoleName(str(role.id), role.name) for role in _held(user, roles)]


def _is_super_admin(user: StoredUser, roles: Roles) -> bool:
    return any(role.name == SUPER_ADMIN for role in _held(user, roles))


def _held(user: StoredUser, roles: Roles) -> list[Role]:
    return [roles[role] for role in user.roles if role in roles]
