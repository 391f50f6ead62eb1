"""Entities on the wire (specification, "Entity"; notes, sections 3.8 and 4)."""

from typing import Annotated, Any

import msgspec

from libs.common.http.console import Ids, PageRequest, Shown
from libs.common.things import AccessMod, EntityType, ValueType


class SearchEntities(PageRequest, kw_only=True):
    """Body of `POST /entity/search`; every filter narrows, of a list any value will do.

    `keyword` is a part, in any case, of the name or key of the entity, of the name of its
    device or of that of its integration.
    """

    keyword: Annotated[str, msgspec.Meta(max_length=512)] | None = None
    entity_type: Annotated[list[EntityType], msgspec.Meta(max_length=10)] | None = None
    entity_value_type: Annotated[list[ValueType], msgspec.Meta(max_length=10)] | None = None
    entity_access_mod: Annotated[list[AccessMod], msgspec.Meta(max_length=10)] | None = None
    entity_ids: Ids | None = None
    exclude_children: bool | None = None
    customized: bool | None = None
    """True: only those that people made; false: all others."""
    show_hidden: bool | None = None


class ShownEntity(Shown, kw_only=True):
    """An entity in a list; times in ms."""

    entity_id: str
    entity_key: str
    entity_name: str
    entity_type: EntityType
    entity_value_type: ValueType
    entity_value_attribute: dict[str, Any]
    entity_access_mod: AccessMod | None = None
    entity_parent_name: str | None = None
    entity_description: str | None = None
    entity_is_customized: bool
    entity_created_at: int
    entity_updated_at: int
    device_name: str | None = None
    integration_name: str | None = None


class EntityMeta(Shown, kw_only=True):
    """Answer of `GET /entity/{entity_id}/meta`; times in ms."""

    id: str
    key: str
    name: str
    type: EntityType
    access_mod: AccessMod | None = None
    value_type: ValueType
    value_attribute: dict[str, Any]
    description: str | None = None
    customized: bool
    created_at: int
    updated_at: int


class EntityStatus(Shown, kw_only=True):
    """Answer of `GET /entity/{entity_id}/status`; empty when there is no value.

    `updated_at` is the time of the value: ms, as text.
    """

    value: Any = None
    updated_at: str | None = None
    value_type: ValueType | None = None
