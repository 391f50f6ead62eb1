"""Resources of roles on the wire."""

from typing import Annotated

import msgspec

from libs.common.contracts.access import ResourceType
from libs.common.http.console import LARGEST_PAGE, PageRequest, Shown
from libs.common.http.ids import NamedId


class SentResource(msgspec.Struct):
    """A resource in a request."""

    id: NamedId
    type: ResourceType


class ResourceList(msgspec.Struct):
    """Body of `associate-resource` and `disassociate-resource`."""

    resources: Annotated[list[SentResource], msgspec.Meta(max_length=LARGEST_PAGE)]


class ResourceSearch(PageRequest, kw_only=True):
    """Body of `resources`; without a type all are listed."""

    resource_type: ResourceType | None = None


class ShownResource(Shown):
    """What a role is granted."""

    resource_id: str
    resource_type: ResourceType


class RoleIntegration(Shown):
    """An integration that a role is granted, with its devices and entities."""

    integration_id: str
    integration_name: str
    device_num: int
    entity_num: int


class CandidateIntegration(Shown):
    """An integration that a role could be granted."""

    integration_id: str
    integration_name: str


class CandidateDevice(Shown):
    """A device that a role could be granted; `created_at` in ms; the user is who added it."""

    device_id: str
    device_name: str
    created_at: str
    integration_id: str
    integration_name: str
    user_id: str | None = None
    user_email: str | None = None
    user_nickname: str | None = None


class RoleDevice(CandidateDevice, kw_only=True):
    """A device that a role shows."""

    role_integration: bool
    """Whether it comes through the grant of its integration or its group, and not alone."""


class RoleDashboard(Shown):
    """A dashboard; `created_at` in ms; the user is who made it."""

    dashboard_id: str
    dashboard_name: str
    created_at: str
    user_id: str | None = None
    user_email: str | None = None
    user_nickname: str | None = None
