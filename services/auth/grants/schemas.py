"""Requests and responses of the resources of roles."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from libs.common.contracts.access import ResourceRef, ResourceType
from libs.common.errors import InvalidInput, MalformedRequest
from libs.common.http.console import MAX_PAGE_ROWS, PageRequest, ResponseModel
from libs.common.http.ids import NamedId, parse_id
from services.auth.accounts.grants import Resource


class ResourceReference(msgspec.Struct):
    """A resource in a request."""

    id: NamedId
    type: ResourceType
    """Type of the resource."""


class ResourceList(msgspec.Struct):
    """Body of `associate-resource` and `disassociate-resource`."""

    resources: Annotated[list[ResourceReference], msgspec.Meta(max_length=MAX_PAGE_ROWS)]
    """Resources to grant to the role or to withdraw from it."""


class ResourceSearch(PageRequest, kw_only=True):
    """Body of `resources`. Without a type, all types are listed."""

    resource_type: ResourceType | None = None


class GrantedResource(ResponseModel):
    """A resource that a role is granted."""

    resource_id: str
    resource_type: ResourceType


class RoleIntegration(ResponseModel):
    """An integration that a role is granted, with its devices and entities."""

    integration_id: str
    integration_name: str
    device_num: int
    """Number of devices of the integration."""
    entity_num: int
    """Number of entities of the integration and its devices."""


class CandidateIntegration(ResponseModel):
    """An integration that a role could be granted."""

    integration_id: str
    integration_name: str


class CandidateDevice(ResponseModel):
    """A device that a role could be granted.

    `created_at` is in ms; the fields `user_…` describe the creator.
    """

    device_id: str
    device_name: str
    created_at: str
    integration_id: str
    integration_name: str
    user_id: str | None = None
    user_email: str | None = None
    user_nickname: str | None = None


class RoleDevice(CandidateDevice, kw_only=True):
    """A device that a role can see."""

    role_integration: bool
    """Whether a grant of the device's integration or group includes the device."""


class RoleDashboard(ResponseModel):
    """A dashboard.

    `created_at` is in ms; the fields `user_…` describe the creator.
    """

    dashboard_id: str
    dashboard_name: str
    """Name of the dashboard."""
    created_at: str
    user_id: str | None = None
    user_email: str | None = None
    user_nickname: str | None = None


MAX_INTEGRATION_CHARACTERS = 127
"""Maximum characters of an integration's id."""


def parse_resources(sent: Sequence[ResourceReference | ResourceRef]) -> list[Resource]:
    """Return the distinct resources in order; raise `InvalidInput` for an invalid id."""
    if not sent:
        raise MalformedRequest("must not be empty", field="resources")
    references = (
        Resource(each.type, _parse_resource_id(each.type, each.id, f"resources[{at}].id"))
        for at, each in enumerate(sent)
    )
    return list(dict.fromkeys(references))


def format_resources(resources: Iterable[Resource]) -> list[str]:
    """Return resources in the form of the audit log, such as `DEVICE 1000000`."""
    return [f"{resource.type.value} {resource.id}" for resource in resources]


def _parse_resource_id(kind: ResourceType, sent: int | str, field: str) -> int | str:
    if kind is ResourceType.INTEGRATION:
        return _parse_integration_id(sent, field)
    return parse_id(sent, field)


def _parse_integration_id(sent: int | str, field: str) -> str:
    if not isinstance(sent, str) or not sent.strip() or not sent.isprintable():
        raise InvalidInput("must be the id of an integration, such as `chirpstack`", field=field)
    if len(sent) > MAX_INTEGRATION_CHARACTERS:
        raise InvalidInput(
            f"must have at most {MAX_INTEGRATION_CHARACTERS} characters", field=field
        )
    return sent
