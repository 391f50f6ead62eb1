"""Sorts what people send for entities: by thing, checked, in the shape that the thing takes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from libs.common.errors import InvalidInput
from services.device.entities.members import Member
from services.device.entities.things import Entity, EntityThing
from services.device.entity_values.checking import (
    ValueFault,
    check_value,
    fault,
    missing,
    refuse,
)

FIELD = "exchange"

T = TypeVar("T")


@dataclass(slots=True)
class Writing:
    """Properties to set of one thing."""

    thing: EntityThing
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Calling:
    """One service to call, with its inputs."""

    thing: EntityThing
    service: Member
    inputs: dict[str, Any] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    """Paths of the inputs that have a value."""

    @property
    def service_id(self) -> str:
        """The service, as the TSL knows it."""
        return self.service.path.removesuffix("@service")


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

    Raises `InvalidInput` with every value at fault, or when nothing is left.
    """
    found: dict[int, Writing] = {}
    faults: list[ValueFault] = []
    for key, given in exchange.items():
        entity = entities.get(key)
        if entity is None or not settable(entity):
            continue
        value, wrong = check_value(key, entity.member, given)
        writing = found.setdefault(entity.thing.id, Writing(entity.thing))
        if wrong is not None:
            faults.append(wrong)
        elif value is not None and value != {}:
            _put(writing.values, entity.reported_path, value)
    return _left([one for one in found.values() if one.values], faults)


def callings(exchange: Mapping[str, Any], entities: Mapping[str, Entity]) -> list[Calling]:
    """What is to be called; what is no service is passed over.

    A service is named by itself or by any of its inputs. Raises `InvalidInput` with every
    value at fault or missing, or when nothing is left.
    """
    found: dict[tuple[int, str], Calling] = {}
    faults: list[ValueFault] = []
    for key, given in exchange.items():
        entity = entities.get(key)
        if entity is None or entity.member.type != "SERVICE":
            continue
        member, members = entity.member, entity.thing.members
        service = member if member.parent is None else members.by_path[member.parent]
        calling = found.setdefault((entity.thing.id, service.path), Calling(entity.thing, service))
        if member is service:
            faults += _whole(calling, key, given)
        else:
            faults += _input(calling, entity, given)
    for calling in found.values():
        faults += _missing(calling)
    return _left(list(found.values()), faults)


def _left(found: list[T], faults: list[ValueFault]) -> list[T]:
    if faults:
        raise refuse(faults, f"{FIELD}.{faults[0].args['entity_key']}")
    if not found:
        raise InvalidInput("has no entity that can be used like this", field=FIELD)
    return found


def _whole(calling: Calling, key: str, given: Any) -> Iterable[ValueFault]:
    """The service named by itself: with nothing, or with its inputs by their names."""
    if given is None or given == "":
        return
    if not isinstance(given, dict):
        yield fault(key, calling.service, "not_match_type", "must be of type OBJECT")
        return
    prefix = f"{calling.service.path}." if calling.service.path else ""
    for name, value in given.items():
        member = calling.thing.members.by_path.get(f"{prefix}{name}")
        if member is None:
            yield fault(key, calling.service, "not_match_type", f"has no input {str(name)[:64]}")
        else:
            yield from _input(calling, Entity(calling.thing, member), value)


def _input(calling: Calling, entity: Entity, given: Any) -> Iterable[ValueFault]:
    value, wrong = check_value(entity.key, entity.member, given)
    if wrong is not None:
        calling.given.add(entity.member.path)
        yield wrong
    elif value is not None:
        calling.given.add(entity.member.path)
        prefix = f"{calling.service.path}." if calling.service.path else ""
        _put(calling.inputs, entity.member.path.removeprefix(prefix).split("."), value)


def _missing(calling: Calling) -> Iterable[ValueFault]:
    """Inputs right below the service that it needs and nobody gave."""
    prefix = f"{calling.service.path}." if calling.service.path else ""
    for member in calling.thing.members.children(calling.service.path):
        inner = "." in member.path.removeprefix(prefix)
        if not (inner or member.attribute.get("optional") or member.path in calling.given):
            yield missing(Entity(calling.thing, member).key, member)


def _put(values: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a value at a path, making the objects on the way."""
    for name in path[:-1]:
        inner = values.get(name)
        if not isinstance(inner, dict):
            inner = values[name] = {}
        values = inner
    last = values.get(path[-1])
    if isinstance(last, dict) and isinstance(value, dict):
        last.update(value)
    else:
        values[path[-1]] = value
