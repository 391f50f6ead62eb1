"""Bring the spellings of vendors to one form."""

from collections.abc import Sequence

from libs.common.tsl._reading import Faults
from libs.common.tsl.document import DataSpec, MappingItem, MemberSpec, ParamSpec


def normalise_member(entry: MemberSpec, path: str, faults: Faults) -> None:
    """Normalise types, encoding and mapping of one property or parameter in place."""
    spec = entry.data_spec
    spec.data_type = spec.data_type.upper()
    spec.element_data_type = (spec.element_data_type or "").upper() or None
    spec.encoding = (spec.encoding or "").upper().replace("-", "") or None
    spec.parent_id = spec.parent_id or None
    if spec.data_type != "STRING" and not spec.default_value:
        spec.default_value = None
    entry.property_key = entry.property_key or entry.id or None
    _unite_mappings(spec, f"{path}.dataSpec", faults)


def _unite_mappings(spec: DataSpec, path: str, faults: Faults) -> None:
    """Give the enumeration as object and as list, whichever came."""
    listed: dict[str, str] = {}
    for at, item in enumerate(spec.mappings or []):
        if item.key in listed:
            faults.add(f"{path}.mappings[{at}].key", "is given twice")
        listed[item.key] = item.value
    if spec.mapping and listed and spec.mapping != listed:
        faults.add(f"{path}.mappings", "contradicts mapping")
    spec.mapping = spec.mapping or listed or None
    if spec.mapping:
        spec.mappings = [MappingItem(key=key, value=name) for key, name in spec.mapping.items()]
    else:
        spec.mappings = None


def qualify_params(params: Sequence[ParamSpec], owner: str) -> None:
    """Give parameters their full ids, `<owner>.<key>`, and a `ref` both of its places.

    Vendors leave out the owner, or the id altogether when there is a `ref`.
    """
    for param in params:
        spec = param.data_spec
        param.ref = spec.ref = param.ref or spec.ref or None
        key = param.id or (param.ref or "").rpartition(".")[2]
        if key and not key.startswith(f"{owner}."):
            if param.property_key in {None, key}:
                param.property_key = f"{owner}.{key}"
            key = f"{owner}.{key}"
        param.id = key
        param.property_key = param.property_key or key or None
        if spec.parent_id and spec.parent_id != owner:
            spec.parent_id = f"{owner}.{spec.parent_id.removeprefix(f'{owner}.')}"
