"""Tags on the wire."""

from typing import Annotated, Literal

import msgspec

from libs.common.http import console
from libs.common.http.ids import Id

Operation = Literal["ADD", "OVERWRITE", "REMOVE", "REPLACE"]
MOST_OF_ENTITY = 10
"""Tags of an entity."""
MOST_TAGS = 300
"""Tags of a tenant."""
MOST_ENTITIES = 1000
"""Entities of one mapping."""


class FindTags(console.PageRequest, kw_only=True):
    """Body of `POST /entity/tags/search`: a part of the name or the description, in any case."""

    keyword: Annotated[str, msgspec.Meta(max_length=63)] | None = None


class WrittenTag(msgspec.Struct, kw_only=True):
    """Body of `POST /entity/tags` and `PUT /entity/tags/{tag_id}`."""

    name: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            max_length=25,
            pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$",
            description="1 to 25 characters, not all blank, none a control character",
        ),
    ]
    color: Annotated[
        str,
        msgspec.Meta(
            min_length=1,
            max_length=32,
            pattern=r"^[#A-Za-z0-9(),.% ]+$",
            description="As CSS writes a colour: #rrggbb",
        ),
    ]
    description: Annotated[str, msgspec.Meta(max_length=63)] | None = None


class TagRef(msgspec.Struct):
    """Answer of `POST /entity/tags`."""

    id: str


class EntityTag(msgspec.Struct, kw_only=True):
    """A tag as an entity carries it."""

    id: str
    name: str
    description: str
    color: str


class ShownTag(EntityTag, kw_only=True):
    """A tag in a list; times in ms."""

    created_at: int
    updated_at: int
    tagged_entities_count: int
    """Of all that carry it, whether the caller sees them or not."""


class TagNumber(msgspec.Struct):
    """Answer of `GET /entity/tags/number`."""

    number: int


class DeleteTags(msgspec.Struct):
    """Body of `POST /entity/tags/delete`."""

    ids: Annotated[list[Id], msgspec.Meta(max_length=MOST_TAGS)]


class MapTags(msgspec.Struct, kw_only=True):
    """Body of `POST /entity/tags/mapping`.

    ADD needs `added_tag_ids`, and so does OVERWRITE, after which entities have exactly these;
    REMOVE needs `removed_tag_ids`. REPLACE needs both, and is for entities that have one of
    those that are removed.
    """

    operation: Operation
    entity_ids: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=MOST_ENTITIES)]
    added_tag_ids: Annotated[list[Id], msgspec.Meta(max_length=MOST_OF_ENTITY)] | None = None
    removed_tag_ids: Annotated[list[Id], msgspec.Meta(max_length=MOST_TAGS)] | None = None
