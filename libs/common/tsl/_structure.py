"""How members hang together: ids, parents, elements of arrays, access.

The parent of a member is a prefix of its id, so a cycle cannot be written down.
"""

from collections.abc import Sequence

from libs.common.tsl._reading import Faults
from libs.common.tsl.document import ACCESS_MODES, CONTAINERS, ITEM, MemberSpec, PropertySpec
from libs.common.tsl.limits import MAX_DEPTH, key_fault


def check_members(entries: Sequence[MemberSpec], path: str, owner: str, faults: Faults) -> None:
    """Check one flat list of members whose top-level ids are `<owner>.<key>`, or bare.

    Fills in `parentId` where the id tells it, and `elementDataType` where the `_item` does.
    """
    seen: dict[str, int] = {}
    for at, entry in enumerate(entries):
        reason = _id_fault(entry.id, owner)
        if reason:
            faults.add(f"{path}[{at}].id", reason)
        elif seen.setdefault(entry.id, at) != at:
            faults.add(f"{path}[{at}].id", f"repeats {path}[{seen[entry.id]}].id")
    by_id = {key: entries[at] for key, at in seen.items()}
    parents = {key.rpartition(".")[0] for key in by_id}
    for at, entry in enumerate(entries):
        if faults.covers(f"{path}[{at}].id"):
            continue
        _check_parent(entry, by_id, f"{path}[{at}]", owner, faults)
        _check_content(entry, by_id, parents, f"{path}[{at}].dataSpec", faults)


def _id_fault(member_id: str, owner: str) -> str | None:
    if not member_id:
        return "is required"
    keys = member_id.removeprefix(f"{owner}.").split(".") if owner else member_id.split(".")
    if len(keys) > MAX_DEPTH:
        return f"is nested more than {MAX_DEPTH} levels deep"
    return next(filter(None, map(key_fault, keys)), None)


def _check_parent(
    entry: MemberSpec, by_id: dict[str, MemberSpec], path: str, owner: str, faults: Faults
) -> None:
    expected, _, key = entry.id.rpartition(".")
    given = entry.data_spec.parent_id
    place = f"{path}.dataSpec.parentId"
    if given and given != expected:
        return faults.add(place, f"is '{given}', but the id lies in '{expected}'")
    entry.data_spec.parent_id = expected or None
    parent = by_id.get(expected)
    kind = parent.data_spec.data_type if parent else "STRUCT"
    if expected != owner and parent is None:
        faults.add(place, f"names no member: '{expected}'")
    elif kind not in CONTAINERS:
        faults.add(place, f"names a {kind or 'member without a type'}, which holds no members")
    elif (key == ITEM) != (kind == "ARRAY"):
        faults.add(f"{path}.id", f"an ARRAY, and nothing else, holds exactly one '{ITEM}'")
    return None


def _check_content(
    entry: MemberSpec, by_id: dict[str, MemberSpec], parents: set[str], path: str, faults: Faults
) -> None:
    """Check that a STRUCT has members and an ARRAY elements; a `ref` may supply both."""
    spec = entry.data_spec
    supplied = bool(getattr(entry, "ref", None))
    if spec.data_type == "STRUCT" and entry.id not in parents and not supplied:
        return faults.add(f"{path}.dataType", "is STRUCT, but has no members")
    if spec.data_type != "ARRAY":
        return None
    place = f"{path}.elementDataType"
    item = by_id.get(f"{entry.id}.{ITEM}")
    if item is None:
        if not spec.element_data_type and not supplied:
            faults.add(place, f"is required, or a member '{entry.id}.{ITEM}'")
        elif spec.element_data_type in CONTAINERS and not supplied:
            faults.add(place, f"needs a member '{entry.id}.{ITEM}'")
        elif spec.element_data_type == "ENUM" and not spec.mapping and not supplied:
            faults.add(f"{path}.mapping", "is required for elements of an ENUM")
        return None
    kind = item.data_spec.data_type
    if spec.element_data_type and spec.element_data_type != kind:
        return faults.add(place, f"contradicts '{item.id}', which is {kind}")
    spec.element_data_type = kind or None
    return None


def settle_access(entries: Sequence[PropertySpec], path: str, faults: Faults) -> None:
    """Check access modes; a member without one takes that of its parent."""
    settled: dict[str, str] = {}
    order = sorted(range(len(entries)), key=lambda at: entries[at].id.count("."))
    for at in order:
        entry = entries[at]
        above = settled.get(entry.id.rpartition(".")[0], "")
        entry.access_mode = settled[entry.id] = entry.access_mode or above
        place = f"{path}[{at}].accessMode"
        if not entry.access_mode:
            faults.add(place, "is required")
        elif entry.access_mode not in ACCESS_MODES:
            faults.add(place, "must be one of R, W, RW")
        elif above == "R" and entry.access_mode != "R":
            faults.add(place, f"is {entry.access_mode} inside of a read-only parent")
