"""Requests and answers about integrations."""

from typing import Any

import msgspec

from libs.common.http.console import PageRequest, ResponseModel
from libs.common.things import AccessMod, EntityType, ValueType


class SearchIntegrations(PageRequest, kw_only=True):
    """Body of `POST /integration/search`; filters may be true, false or absent."""

    device_addable: bool | None = None
    device_deletable: bool | None = None


class ShownIntegration(ResponseModel, kw_only=True):
    """An integration in a list. The counts have two spellings, because clients use both."""

    id: str
    icon: str
    name: str
    description: str
    add_device_service_key: str | None = None
    delete_device_service_key: str | None = None
    carries_frames: bool
    """Whether its devices send bytes, which the codecs of their products decode."""
    device_count: int
    entity_count: int
    device_count_camel: int = msgspec.field(name="deviceCount")
    entity_count_camel: int = msgspec.field(name="entityCount")


class IntegrationEntity(ResponseModel, kw_only=True):
    """An entity of the integration itself."""

    id: str
    key: str
    name: str
    type: EntityType
    value_attribute: dict[str, Any]
    value_type: ValueType
    access_mod: AccessMod | None = None
    parent: str | None = None
    description: str | None = None
    value: Any = None


class IntegrationDetail(ShownIntegration, kw_only=True):
    """An integration with its entities: parents, each followed by its children."""

    integration_entities: list[IntegrationEntity]
