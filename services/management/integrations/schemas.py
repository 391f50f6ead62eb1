"""Integrations on the wire."""

from typing import Any

import msgspec

from libs.common.http.console import PageRequest, Shown
from libs.common.things import AccessMod, EntityType, ValueType


class SearchIntegrations(PageRequest, kw_only=True):
    """Body of `POST /integration/search`: both filters compare, false finds those without."""

    device_addable: bool | None = None
    device_deletable: bool | None = None


class ShownIntegration(Shown, kw_only=True):
    """An integration in the list. The counts come in both spellings that are in use."""

    id: str
    icon: str
    name: str
    description: str
    add_device_service_key: str | None = None
    delete_device_service_key: str | None = None
    carries_frames: bool
    """Whether its devices send bytes, which the codecs of their products read."""
    device_count: int
    entity_count: int
    device_count_camel: int = msgspec.field(name="deviceCount")
    entity_count_camel: int = msgspec.field(name="entityCount")


class IntegrationEntity(Shown, kw_only=True):
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
    """One integration with its entities: parents, each followed by its children."""

    integration_entities: list[IntegrationEntity]
