"""Property keys: by which values are named where a document has keys that differ from its ids.

A key is a path like an id: that of a member continues the key of its parent. Documents keep ids and
keys as they were imported; everything that reads or checks values works with `by_keys`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from libs.common.tsl._reading import Faults
from libs.common.tsl.document import ITEM, MemberSpec, TslDocument
from libs.common.tsl.limits import key_fault, sign_fault

_M = TypeVar("_M", bound=MemberSpec)


def settle_keys(
    entries: Sequence[MemberSpec], path: str, owner: str, faults: Faults, *, stored: bool = False
) -> None:
    """Complete the property key of each entry of a list whose ids are right, in place.

    A key may be given as a whole, or as the last part alone. Each must be unique, and no id of
    another entry. A `stored` document may have signs that no new one can have.
    """
    keys = {owner: owner}
    places: dict[str, int] = {}
    ids = {entry.id: at for at, entry in enumerate(entries)}
    for at in sorted(ids.values(), key=lambda at: entries[at].id.count(".")):
        entry, place = entries[at], f"{path}[{at}].propertyKey"
        parent, _, last = entry.id.rpartition(".")
        own = _own_key(entry, {parent, keys[parent]}, last)
        reason = _key_fault(own, last, stored=stored)
        if reason is not None:
            faults.add(place, reason if own else f"must be a key, or begin with '{keys[parent]}.'")
            own = last
        key = f"{keys[parent]}.{own}" if keys[parent] else own
        keys[entry.id] = entry.property_key = key
        if places.setdefault(key, at) != at:
            faults.add(place, f"repeats {path}[{places[key]}].propertyKey")
        elif ids.get(key, at) != at:
            faults.add(place, f"is the id of {path}[{ids[key]}]")


def _own_key(entry: MemberSpec, parents: set[str], last: str) -> str:
    """Return the last part of a key; empty when it is in no parent of the entry."""
    given = entry.property_key
    if not given or given == entry.id:
        return last
    above, dot, own = given.rpartition(".")
    return own if not dot or above in parents else ""


def _key_fault(own: str, last: str, *, stored: bool) -> str | None:
    if own == last:
        return None
    if ITEM in {own, last}:
        return f"must end in '{last}'" if last == ITEM else f"must not end in '{ITEM}'"
    return key_fault(own) or (None if stored else sign_fault(own))


def by_keys(document: TslDocument) -> TslDocument:
    """Return a document whose ids are its property keys; itself where they are the same."""
    if all(entry.property_key in {None, entry.id} for entry in entries_of(document)):
        return document
    return replace(
        document,
        properties=keyed_entries(document.properties),
        events=[replace(one, outputs=keyed_entries(one.outputs)) for one in document.events],
        services=[
            replace(one, inputs=keyed_entries(one.inputs), outputs=keyed_entries(one.outputs))
            for one in document.services
        ],
    )


def with_keys_of_ids(document: TslDocument) -> TslDocument:
    """Return a document as it was used before property keys were: each is the id of its entry."""
    if by_keys(document) is document:
        return document
    plain: TslDocument = msgspec.convert(msgspec.to_builtins(document), TslDocument)
    for entry in entries_of(plain):
        entry.property_key = entry.id
    return plain


def entries_of(document: TslDocument) -> Iterator[MemberSpec]:
    """Give the properties and parameters of a document."""
    yield from document.properties
    for event in document.events:
        yield from event.outputs
    for service in document.services:
        yield from (*service.inputs, *service.outputs)


def keyed_entries(entries: Iterable[_M]) -> list[_M]:
    """Return entries with their keys as ids."""
    return [_renamed(entry, entry.property_key or entry.id) for entry in entries]


def _renamed(entry: _M, key: str) -> _M:
    spec = replace(entry.data_spec, parent_id=key.rpartition(".")[0] or None)
    return replace(entry, id=key, data_spec=spec)
