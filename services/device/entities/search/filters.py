"""Which members a search wants, whatever things they belong to."""

from collections.abc import Iterable

from services.device.entities.members import Member
from services.device.entities.schemas import SearchEntities


class MemberFilter:
    """The filters of a search that look at members alone."""

    def __init__(self, search: SearchEntities) -> None:
        self._types = frozenset(search.entity_type or ())
        self._value_types = frozenset(search.entity_value_type or ())
        self._access_mods = frozenset(search.entity_access_mod or ())
        self._parents_only = bool(search.exclude_children)
        self._hidden = bool(search.show_hidden)

    def __call__(self, members: Iterable[Member]) -> list[Member]:
        """Those that pass."""
        return [member for member in members if self._passes(member)]

    def _passes(self, member: Member) -> bool:
        return (
            (not self._types or member.type in self._types)
            and (not self._value_types or member.value_type in self._value_types)
            and (not self._access_mods or member.access_mod in self._access_mods)
            and (not self._parents_only or member.parent is None)
            and (self._hidden or member.visible)
        )
