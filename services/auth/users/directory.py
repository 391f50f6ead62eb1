"""Queries about users: search, profile, menus and permissions."""

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
from libs.common.things import SYSTEM_INTEGRATION
from services.auth.accounts import Accounts
from services.auth.accounts.grants import Resource
from services.auth.accounts.roles import SUPER_ADMIN_ROLE_NAME, Menu, Role
from services.auth.accounts.users import StoredUser
from services.auth.menus import build_menu_tree, filter_supported_menus, select_with_ancestors
from services.auth.users.schemas import CheckPermission, Profile, RoleName, UserResponse, UserSearch
from services.auth.users.service import user_not_found_error

CUSTOM_ENTITY_INTEGRATION = Resource(ResourceType.INTEGRATION, SYSTEM_INTEGRATION)
"""Integration of custom entities, which all users may see."""

RolesById = Mapping[int, Role]
"""Roles by id; a user may have an id whose role was deleted a moment ago."""


@dataclass(frozen=True)
class UserDirectory:
    """Queries about the users of a tenant."""

    accounts: Accounts
    devices: DeviceClient
    """Looks up the integration and group of devices and entities."""

    async def search(self, tenant: str, request: UserSearch) -> tuple[list[UserResponse], int]:
        """Return one page of matching users, and the number of all matches."""
        users, total = await self.accounts.users.search(tenant, request.keyword or "", request)
        roles = await self._find_roles(tenant, users)
        return [_user_response(user, roles) for user in users], total

    async def get_profile(self, principal: Principal) -> Profile:
        """Return the profile of the caller; raise `Unauthenticated` if deleted."""
        user = await self.accounts.users.get(principal.tenant, principal.user_id)
        if user is None:
            raise Unauthenticated("the user is deleted")
        roles = await self._find_roles(user.tenant, [user])
        super_admin = _is_super_admin(user, roles)
        return Profile(
            tenant_id=user.tenant,
            user_id=str(user.id),
            nickname=user.nickname,
            email=user.email,
            created_at=str(to_ms(user.created_at)),
            roles=_role_names(user, roles),
            menus=build_menu_tree(await self._list_available_menus(principal, user, roles)),
            super_admin=super_admin,
            is_super_admin=super_admin,
            may_command=principal.may_command,
        )

    async def list_menus(self, caller: Principal, user_id: int) -> Sequence[Menu]:
        """Return the menus available to a user, with ancestors; raise `NotFound`."""
        user = await self._get_user(caller.tenant, user_id)
        return await self._list_available_menus(
            caller, user, await self._find_roles(caller.tenant, [user])
        )

    async def has_permission(self, tenant: str, user_id: int, request: CheckPermission) -> bool:
        """Return whether a user may read a resource.

        A grant of the resource's device, group or integration is sufficient, too. Raises
        `NotFound`, and `Unavailable` if `device` does not respond.
        """
        user = await self._get_user(tenant, user_id)
        kind, sent = request.resource_type, request.resource_id
        is_integration = kind is ResourceType.INTEGRATION
        resource = str(sent) if is_integration else parse_id(sent, "resource_id")
        if _is_super_admin(user, await self._find_roles(tenant, [user])):
            return True
        if await self.accounts.grants.is_granted(tenant, user.roles, kind, resource):
            return True
        if isinstance(resource, str):
            return False
        parents = await self._find_parent_resources(tenant, kind, resource)
        return CUSTOM_ENTITY_INTEGRATION in parents or any(
            [
                await self.accounts.grants.is_granted(tenant, user.roles, parent.type, parent.id)
                for parent in parents
            ]
        )

    async def _find_parent_resources(
        self, tenant: str, kind: ResourceType, number: int
    ) -> list[Resource]:
        """Return the integration, group and device that the resource belongs to."""
        if kind is ResourceType.DEVICE:
            described = await self.devices.describe_devices(tenant, [number])
            return [parent for device in described for parent in _list_parent_resources(device)]
        if kind is not ResourceType.ENTITY:
            return []
        entities = await self.devices.resolve(tenant, ids=[number])
        parents = [parent for entity in entities for parent in _list_parent_resources(entity)]
        parents += [
            Resource(ResourceType.DEVICE, entity.thing_id) for entity in entities if entity.device
        ]
        return parents

    async def _get_user(self, tenant: str, user_id: int) -> StoredUser:
        user = await self.accounts.users.get(tenant, user_id)
        if user is None:
            raise user_not_found_error(user_id)
        return user

    async def _find_roles(self, tenant: str, users: Iterable[StoredUser]) -> RolesById:
        return await self.accounts.roles.find(
            tenant, {role for user in users for role in user.roles}
        )

    async def _list_available_menus(
        self, caller: Principal, user: StoredUser, roles: RolesById
    ) -> Sequence[Menu]:
        """Return the menus of a user's roles with ancestors; all for a super-admin.

        Menus that the caller's console does not support are left out.
        """
        menus = filter_supported_menus(caller, await self.accounts.menus.list_all(user.tenant))
        if _is_super_admin(user, roles):
            return menus
        return select_with_ancestors(
            menus, [menu for role in _existing_roles(user, roles) for menu in role.menus]
        )


def _list_parent_resources(resource: DescribedDevice | ResolvedEntity) -> list[Resource]:
    parents = [Resource(ResourceType.INTEGRATION, resource.integration)]
    if resource.group is not None:
        parents.append(Resource(ResourceType.DEVICE_GROUP, resource.group))
    return parents


def _user_response(user: StoredUser, roles: RolesById) -> UserResponse:
    return UserResponse.from_fields(
        user, tenant_id=user.tenant, user_id=str(user.id), roles=_role_names(user, roles)
    )


def _role_names(user: StoredUser, roles: RolesById) -> list[RoleName]:
    return [RoleName(str(role.id), role.name) for role in _existing_roles(user, roles)]


def _is_super_admin(user: StoredUser, roles: RolesById) -> bool:
    return any(role.name == SUPER_ADMIN_ROLE_NAME for role in _existing_roles(user, roles))


def _existing_roles(user: StoredUser, roles: RolesById) -> list[Role]:
    return [roles[role] for role in user.roles if role in roles]
