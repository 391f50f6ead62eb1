"""What users may do and see: `rpc.auth.{operation}`, asked by the gateway and the services.

Everything here has the version of the tenant's access; it grows with every change of users,
roles, menus and grants, and an answer is never older than the version it carries.
"""

from enum import StrEnum

import msgspec

ACCESS = "rpc.auth.get_access"
GRANTS = "rpc.auth.get_grants"
SHARE = "rpc.auth.share_with_roles"
FORGET = "rpc.auth.forget_resources"


class ResourceType(StrEnum):
    """What a role can be granted."""

    ENTITY = "ENTITY"
    DEVICE = "DEVICE"
    DEVICE_GROUP = "DEVICE_GROUP"
    INTEGRATION = "INTEGRATION"
    DASHBOARD = "DASHBOARD"
    WORKFLOW = "WORKFLOW"


class UserRef(msgspec.Struct, rename="camel"):
    """`get_access` and `get_grants`: of which user."""

    tenant: str
    user_id: int


class Access(msgspec.Struct, frozen=True, rename="camel"):
    """Answer of `get_access`; refused with 401 when the user is gone or disabled."""

    version: int
    functions: frozenset[str]
    super_admin: bool
    viewers_may_command: bool = False
    """The tenant's setting "Viewers may command devices"."""


class GrantedResources(msgspec.Struct, frozen=True, rename="camel"):
    """Answer of `get_grants`: the union over the user's roles, without what a super-admin has.

    An integration and a group stand for all their devices and the entities of these, a device
    for its entities. Which devices a group has is not told here: it stands with the devices.
    """

    version: int
    integrations: frozenset[str] = frozenset()
    devices: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()
    entities: frozenset[int] = frozenset()
    dashboards: frozenset[int] = frozenset()
    workflows: frozenset[int] = frozenset()


class ResourceRef(msgspec.Struct, frozen=True):
    """One resource; integrations have names for ids, all others decimal strings."""

    id: str
    type: ResourceType


class ShareWithRoles(msgspec.Struct, rename="camel"):
    """`share_with_roles`: grant resources to every role of the user who made them."""

    tenant: str
    user_id: int
    resources: list[ResourceRef]


class ForgetResources(msgspec.Struct):
    """`forget_resources`: they are gone, so are their grants."""

    tenant: str
    resources: list[ResourceRef]
