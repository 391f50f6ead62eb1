"""Errors about tags, with the codes that consoles know."""

from libs.common.errors import InvalidInput, NotFound


def tag_not_found(field: str) -> NotFound:
    """There is no such tag, or none any more."""
    return NotFound("there is no such tag", field=field, code="entity_tag_not_found")


def tag_exists(name: str) -> InvalidInput:
    """A name is taken."""
    text = f"there is a tag {name} already"
    return InvalidInput(text, field="name", code="entity_tag_name_already_exists")


def too_many_tags(most: int) -> InvalidInput:
    """A tenant has as many as it may."""
    text = f"there are at most {most} tags"
    return InvalidInput(text, field="name", code="number_of_entity_tags_exceeded")


def too_many_of_entity(most: int) -> InvalidInput:
    """An entity would have more than it may."""
    text = f"an entity has at most {most} tags"
    return InvalidInput(text, field="added_tag_ids", code="number_of_tags_per_entity_exceeded")
