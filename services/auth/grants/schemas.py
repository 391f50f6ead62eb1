"""Resources of roles on the wire."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from libs.common.contracts.access import ResourceRef, ResourceType
from libs.common.errors import InvalidInput, MalformedRequest
from libs.common.http.console import LARGEST_PAGE, PageRequest, Shown
from libs.common.http.ids import NamedId, parse_id
from services.auth.accounts.grants import Resource


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


MAX_INTEGRATION = 127
"""Most characters of an integration's id."""


def resources_of(sent: Sequence[SentResource | ResourceRef]) -> list[Resource]:
    """The resources, each once, in the order they came; raise `InvalidInput` that names one."""
    if not sent:
        raise MalformedRequest("resources is empty", field="resources")
    found = (
        Resource(each.type, _id(each.type, each.id, f"resources[{at}].id"))
        for at, each in enumerate(sent)
    )
    return list(dict.fromkeys(found))


def shown_ids(resources: Iterable[Resource]) -> list[str]:
    """Resources as the audit log has them, such as `DEVICE 1000000`."""
    return [f"{resource.type.value} {resource.id}" for resource in resources]


def _id(kind: ResourceType, sent: int | str, field: str) -> int | str:
    if kind is ResourceType.INTEGRATION:
        return _integration(sent, field)
    return parse_id(sent, field)


def _integration(sent: int | str, field: str) -> str:
    if not isinstance(sent, str) or not sent.strip() or not sent.isprintable():
        raise InvalidInput("the id of an INTEGRATION is its name", field=field)
    if len(sent) > MAX_INTEGRATION:
        raise InvalidInput(f"must have at most {MAX_INTEGRATION} characters", field=field)
    return sent
