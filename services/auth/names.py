"""Names that people give: of roles, menus, applications, and nicknames."""

from libs.common.errors import InvalidInput, MalformedRequest


def checked_name(text: str, field: str, most: int) -> str:
    """The name without blanks around it; raise `InvalidInput` when it is empty or overlong."""
    name = text.strip()
    if not name:
        raise MalformedRequest(f"{field} is empty", field=field)
    if len(name) > most:
        raise InvalidInput(f"must have at most {most} characters", field=field)
    if not name.isprintable():
        raise InvalidInput("must not have control characters", field=field)
    return name
