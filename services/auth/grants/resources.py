"""Reads the resources of requests."""

from collections.abc import Iterable, Sequence

from libs.common.contracts.access import ResourceRef, ResourceType
from libs.common.errors import InvalidInput, MalformedRequest
from libs.common.http.ids import parse_id
from services.auth.accounts.grants import Resource
from services.auth.grants.schemas import SentResource

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
