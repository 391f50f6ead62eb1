"""Sorts what people send for entities by thing, in the shape that the thing takes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from libs.common.errors import InvalidInput
from libs.common.tsl import Fault
from services.device.members.entity import Entity, EntityThing
from services.device.members.members import Member
from services.device.members.values import ValueFault, put, read_value, value_faults

FIELD = "exchange"

T = TypeVar("T")


@dataclass(slots=True)
class Writing:
    """Properties to set of one thing."""

    thing: EntityThing
    values: dict[str, Any] = field(default_factory=dict)

    def faults(self, faults: Iterable[Fault]) -> list[ValueFault]:
        """What the TSL refuses (`properties.…`), said of the entities."""
        if not self.thing.device and self.thing.identifier:  # it reports under its identifier
            own = f"properties.{self.thing.identifier}"
            faults = [
                msgspec.structs.replace(fault, path=f"properties{fault.path.removeprefix(own)}")
                for fault in faults
            ]
        return value_faults(self.thing.key, self.thing.members, "", faults)


@dataclass(slots=True)
class Calling:
    """One service to call, with its inputs."""

    thing: EntityThing
    service: Member
    inputs: Any = field(default_factory=dict)
    """By their names; anything else that was sent is for the TSL to refuse."""

    @property
    def service_id(self) -> str:
        """The service, as the TSL knows it."""
        return (self.service.path or self.thing.identifier).removesuffix("@service")

    def faults(self, faults: Iterable[Fault]) -> list[ValueFault]:
        """What the TSL refuses (`inputs.…`), said of the entities."""
        return value_faults(self.thing.key, self.thing.members, self.service.path, faults)

    def member(self, name: str) -> Member | None:
        """The input of a name."""
        path = f"{self.service.path}.{name}" if self.service.path else name
        return self.thing.members.by_path.get(path)

    def give(self, name: str, value: Any) -> None:
        """Give an input as it was sent; null counts as none where there may be none."""
        member = self.member(name)
        if not isinstance(self.inputs, dict):
            return
        if member is None:
            self.inputs[name] = value
        elif value is not None or not member.attribute.get("optional"):
            put(self.inputs, name.split("."), read_value(member.value_type, value))


Settable = Callable[[Entity], bool]
"""Whether an entity may be set by who asks."""


def by_people(entity: Entity) -> bool:
    """Properties that can be written."""
    return entity.member.writable


def by_flows(entity: Entity) -> bool:
    """Besides those, custom properties that people only read: who else should set them?"""
    return entity.member.writable or (entity.customized and entity.member.type == "PROPERTY")


def writings(
    exchange: Mapping[str, Any], entities: Mapping[str, Entity], settable: Settable = by_people
) -> list[Writing]:
    """What is to be set; what cannot be written is passed over.

    An empty secret stays as it is: a thing may be left without any value. Values are for the TSL
    to check. Raises `InvalidInput` when nothing is left.
    """
    found: dict[int, Writing] = {}
    for key, given in exchange.items():
        entity = entities.get(key)
        if entity is None or not settable(entity):
            continue
        value = read_value(entity.member.value_type, given)
        if entity.secret and value in (None, ""):
            found.setdefault(entity.thing.id, Writing(entity.thing))
            continue
        if value == {} or (value is None and entity.member.attribute.get("optional")):
            continue
        writing = found.setdefault(entity.thing.id, Writing(entity.thing))
        put(writing.values, entity.reported_path, value)
    return _left(list(found.values()))


def callings(exchange: Mapping[str, Any], entities: Mapping[str, Entity]) -> list[Calling]:
    """What is to be called; what is no service is passed over.

    A service is named by itself or by any of its inputs. Inputs are for the TSL to check.
    Raises `InvalidInput` when nothing is left.
    """
    found: dict[tuple[int, str], Calling] = {}
    for key, given in exchange.items():
        entity = entities.get(key)
        if entity is None or entity.member.type != "SERVICE":
            continue
        member, members = entity.member, entity.thing.members
        service = member if member.parent is None else members.by_path[member.parent]
        calling = found.setdefault((entity.thing.id, service.path), Calling(entity.thing, service))
        if member is not service:
            calling.give(member.path.removeprefix(f"{service.path}."), given)
        elif isinstance(given, dict):
            for name, value in given.items():
                calling.give(name, value)
        elif given is not None and given != "":
            calling.inputs = given
    return _left(list(found.values()))


def _left(found: list[T]) -> list[T]:
    if not found:
        raise InvalidInput("has no entity that can be used like this", field=FIELD)
    return found
