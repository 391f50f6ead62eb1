"""Permissions of users, requested from `auth`: `rpc.auth.{operation}`.

Each answer has the version of the tenant's access, which grows with every change of users, roles,
menus and grants. An answer is never older than its version.
"""

from enum import StrEnum

import msgspec

GET_ACCESS = "rpc.auth.get_access"
GET_GRANTS = "rpc.auth.get_grants"
SHARE_WITH_ROLES = "rpc.auth.share_with_roles"
FORGET_RESOURCES = "rpc.auth.forget_resources"


class ResourceType(StrEnum):
    """The types of resources that a role can be granted."""

    ENTITY = "ENTITY"
    DEVICE = "DEVICE"
    DEVICE_GROUP = "DEVICE_GROUP"
    INTEGRATION = "INTEGRATION"
    DASHBOARD = "DASHBOARD"
    WORKFLOW = "WORKFLOW"


class UserRef(msgspec.Struct, rename="camel"):
    """Request of `get_access` and `get_grants`: the user."""

    tenant: str
    user_id: int


class Access(msgspec.Struct, frozen=True, rename="camel"):
    """Answer of `get_access`; 401 when the user is deleted or disabled."""

    version: int
    functions: frozenset[str]
    super_admin: bool
    viewers_may_command: bool = False
    """The tenant's setting "Viewers may command devices"."""


class GrantedResources(msgspec.Struct, frozen=True, rename="camel"):
    """Answer of `get_grants`: the resources of all roles of a user; super-admins need no grants.

    An integration or a group includes all its devices and their entities, a device its entities.
    The devices of a group are not listed; each device holds its group.
    """

    version: int
    integrations: frozenset[str] = frozenset()
    devices: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()
    entities: frozenset[int] = frozenset()
    dashboards: frozenset[int] = frozenset()
    workflows: frozenset[int] = frozenset()


class ResourceRef(msgspec.Struct, frozen=True):
    """A resource; the id of an integration is a name, all others are decimal texts."""

    id: str
    type: ResourceType


class ShareWithRoles(msgspec.Struct, rename="camel"):
    """`share_with_roles`: grant resources to every role of the user who created them."""

    tenant: str
    user_id: int
    resources: list[ResourceRef]


class ForgetResources(msgspec.Struct):
    """`forget_resources`: delete the grants of deleted resources."""

    tenant: str
    resources: list[ResourceRef]
