"""`ref`: a parameter takes from the property it names what it does not say itself."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from libs.common.tsl._reading import Faults
from libs.common.tsl.document import (
    CONTAINERS,
    NUMBERS,
    DataSpec,
    ParamSpec,
    PropertySpec,
    Validator,
)
from libs.common.tsl.limits import MAX_DEPTH, MAX_MEMBERS

_T = TypeVar("_T", DataSpec, Validator)
_OWN = {"parent_id", "ref", "default_value", "required"}


def resolve_references(
    params: Sequence[ParamSpec], properties: Mapping[str, DataSpec], path: str, faults: Faults
) -> None:
    """Complete the `dataSpec` of every parameter that has a `ref`, in place.

    Its own rules win. `required` and the default value are never taken over: they speak
    of the property in its place, not of the parameter. Of a property of another type
    (numbers are one) nothing is taken.
    """
    for at, param in enumerate(params):
        if not param.ref:
            continue
        source = properties.get(param.ref)
        if source is None:
            faults.add(f"{path}[{at}].ref", f"names no property: '{param.ref}'")
        elif _alike(param.data_spec, source):
            rules = _completed(
                param.data_spec.validator or Validator(), source.validator or Validator()
            )
            param.data_spec = _completed(param.data_spec, source)
            param.data_spec.validator = rules if rules != Validator() else None


def _alike(spec: DataSpec, source: DataSpec) -> bool:
    kinds = {spec.data_type or source.data_type, source.data_type}
    return len(kinds) == 1 or kinds <= NUMBERS


def _completed(own: _T, source: _T) -> _T:
    lacking = {
        name: getattr(source, name)
        for name in own.__struct_fields__
        if name not in _OWN and getattr(own, name) in (None, "")
    }
    return replace(own, **lacking)


def copy_referenced_members(
    params: list[ParamSpec], properties: Sequence[PropertySpec], path: str, faults: Faults
) -> None:
    """Give parameters that refer to a STRUCT or ARRAY its members, unless they have some.

    Stops once `params` exceeds the most that a document may have.
    """
    specs = {entry.id: entry.data_spec for entry in properties}
    whole: list[ParamSpec] = []
    for at, param in enumerate(params):
        whole.append(param)
        own = any(other.id.startswith(f"{param.id}.") for other in params)
        if not param.ref or own or param.data_spec.data_type not in CONTAINERS:
            continue
        copies = _copies(param, properties)
        if _kinds(param.data_spec) != _kinds(specs[param.ref]):
            faults.add(f"{path}[{at}].ref", f"names a property of another type: '{param.ref}'")
        elif any(copy.id.count(".") > MAX_DEPTH for copy in copies):
            faults.add(f"{path}[{at}].ref", f"nests members more than {MAX_DEPTH} levels deep")
        else:
            whole += copies
        if len(whole) > MAX_MEMBERS:
            break
    params[:] = whole


def _kinds(spec: DataSpec) -> tuple[str, str | None]:
    return spec.data_type, spec.element_data_type


def _copies(param: ParamSpec, properties: Sequence[PropertySpec]) -> list[ParamSpec]:
    copies = []
    for entry in properties:
        if not entry.id.startswith(f"{param.ref}."):
            continue
        copy_id = param.id + entry.id.removeprefix(param.ref or "")
        spec = replace(entry.data_spec, parent_id=copy_id.rpartition(".")[0])
        copies.append(
            ParamSpec(
                id=copy_id,
                property_key=(entry.property_key or copy_id).rpartition(".")[2],
                name=entry.name,
                description=entry.description,
                data_spec=spec,
            )
        )
    return copies
