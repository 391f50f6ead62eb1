"""Where the values of an entity are kept, by what it is.

Properties stand in the partitions of history, outputs of events in `device_events`, inputs of
the services of devices in `commands`. The value of an event or a service itself is the object of
them all, at each time that it occurred or was called; a STRUCT has none, its children have.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from libs.common.clock import from_ms, to_ms
from services.device.members.entity import Entity
from services.device.telemetry.device_events import EVENTS
from services.device.telemetry.partitions import (
    KEY,
    LAST,
    collection_name,
    history_key,
    partition_of,
)

COMMANDS = "commands"


@dataclass(frozen=True, slots=True)
class Span:
    """`start` ≤ time ≤ `end`, in ms."""

    start: int
    end: int
    newest_first: bool = True

    @property
    def direction(self) -> int:
        """The order, as MongoDB has it."""
        return -1 if self.newest_first else 1


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read of one collection."""

    collection: str
    match: dict[str, Any]
    order: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Source:
    """The values of one entity."""

    entity: Entity
    oldest: int
    """From when on (ms) its history is kept."""

    @property
    def field(self) -> str:
        """Where a document has the value."""
        path = self.entity.reported_path
        match self.entity.member.type:
            case "PROPERTY":
                return ".".join(("p", *path))
            case "EVENT":
                return ".".join(("o", *path[1:]))
            case _:
                return ".".join(("payload.inputs", *path[1:]))

    @property
    def projection(self) -> dict[str, Any]:
        """The value as `v`, and `t` where the key does not tell the time."""
        return {"v": f"${self.field}"} | (
            {"t": "$createdAt"} if self.entity.member.type == "SERVICE" else {}
        )

    def scans(self, span: Span) -> list[Scan]:
        """What to read, in the order of `span`; nothing of what is write-only."""
        member = self.entity.member
        if self.entity.write_only:
            return []
        span = replace(span, start=max(span.start, self.oldest))
        if member.type == "SERVICE":
            return [self._of_commands(span)]
        order = [("_id", span.direction)]
        match: dict[str, Any] = {"_id": self._keys(span), **self._present()}
        if member.type == "EVENT":
            return [Scan(EVENTS, match | {"e": self._owner()}, order)]
        partitions = range(partition_of(span.start), partition_of(span.end) + 1)
        ordered: Sequence[int] = partitions[:: span.direction]
        return [Scan(collection_name(partition), match, order) for partition in ordered]

    def _keys(self, span: Span) -> dict[str, bytes]:
        thing = self.entity.thing.id
        return {
            "$gte": history_key(thing, span.start, 0),
            "$lte": history_key(thing, span.end, LAST),
        }

    def _present(self) -> dict[str, Any]:
        """The value is there, and is none of which the children have the parts.

        A device of the open product may send a value in one report and an object in another;
        all others are spared the question, which takes a third of the time of an aggregate.
        """
        member = self.entity.member
        if member.type != "PROPERTY" and member.parent is None:
            return {self.field: {"$exists": True}}
        if member.value_type == "OBJECT":
            return {self.field: {"$type": "array"}}
        if self.entity.thing.members.children(member.path):
            return {self.field: {"$exists": True, "$not": {"$type": "object"}}}
        return {self.field: {"$exists": True}}

    def _owner(self) -> str:
        """Id of the event or service that the entity belongs to."""
        first = self.entity.reported_path[0]
        return first.removesuffix(f"@{self.entity.member.type.lower()}")

    def _of_commands(self, span: Span) -> Scan:
        first, last = (from_ms(ms) for ms in (span.start, span.end))
        match = {
            "thingId": self.entity.thing.id,
            "kind": "CALL_SERVICE",
            "payload.serviceId": self._owner(),
            "createdAt": {"$gte": first, "$lte": last},
            **self._present(),
        }
        return Scan(COMMANDS, match, [("createdAt", span.direction), ("_id", span.direction)])


def time_of(row: dict[str, Any]) -> int:
    """When a row's value was, in ms."""
    if "t" in row:
        return to_ms(row["t"])
    return int(KEY.unpack(row["_id"])[1])
