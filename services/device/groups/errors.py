"""Errors about groups, with the codes that consoles know."""

from libs.common.errors import InvalidInput, NotFound

GROUP_FIELD = "group_name"
"""Where a device names its group."""


def group_not_found(group_id: int) -> NotFound:
    """There is no such group, or none any more."""
    text = f"there is no group {group_id}"
    return NotFound(text, field="group_id", code="device_group_not_found")


def group_exists(name: str) -> InvalidInput:
    """A name is taken."""
    text = f"there is a group {name} already"
    return InvalidInput(text, field="name", code="device_group_name_exists")


def too_many_groups(most: int, field: str = "name") -> InvalidInput:
    """A tenant has as many as it may."""
    text = f"there are at most {most} groups"
    return InvalidInput(text, field=field, code="device_group_number_limitation")
