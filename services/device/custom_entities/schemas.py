"""Custom entities on the wire (notes, sections 3.8 and 4)."""

from typing import Annotated, Any

import msgspec

from libs.common.http.console import Ids
from libs.common.things import AccessMod, EntityType, ValueType

MOST_OPTIONS = 1000

Identifier = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z0-9_@#\-/\[\]][A-Za-z0-9_@#$\-/\[\]]*$",
        description="Letters, digits and _@#$-/[], not beginning with $",
    ),
]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"\S")]


class CreateEntity(msgspec.Struct, kw_only=True):
    """Body of `POST /entity`; a child has the identifier of its parent, an OBJECT."""

    identifier: Identifier
    name: Name
    type: EntityType
    value_type: ValueType
    access_mod: AccessMod | None = None
    """Of a PROPERTY; it must have one."""
    value_attribute: dict[str, Any] | None = None
    visible: bool | None = None
    """Unless it is false, the entity is shown."""
    parent_identifier: Identifier | None = None
    description: Annotated[str, msgspec.Meta(max_length=1024)] | None = None


class RenameEntity(msgspec.Struct):
    """Body of `PUT /entity/{entity_id}`."""

    name: Name


class DeleteEntities(msgspec.Struct):
    """Body of `POST /entity/delete`."""

    entity_ids: Ids
