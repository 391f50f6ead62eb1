"""The import of a vendor's TSL document: complete check and normalisation."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from msgspec.structs import replace

from libs.common.tsl._document_rules import check_members, check_spec, complete_access
from libs.common.tsl._node import normalise_member, qualify_params
from libs.common.tsl.document import (
    CALL_TYPES,
    CONTAINER_TYPES,
    EVENT_TYPES,
    NUMBER_TYPES,
    DataSpec,
    EventSpec,
    ParamSpec,
    PropertyOrParamSpec,
    PropertySpec,
    ServiceSpec,
    TslDocument,
    Validator,
    complete_keys,
    iterate_entries,
)
from libs.common.tsl.faults import Fault, Faults, TslInvalid, object_from_pairs, read_struct
from libs.common.tsl.limits import MAX_DEPTH, MAX_MEMBERS, find_key_fault, find_sign_fault

_T = TypeVar("_T", DataSpec, Validator)
_OWN_FIELDS = {"parent_id", "ref", "default_value", "required"}


def resolve_references(
    params: Sequence[ParamSpec], properties: Mapping[str, DataSpec], path: str, faults: Faults
) -> None:
    """Complete the `dataSpec` of every parameter that has a `ref`, in place.

    Rules of the parameter take precedence. `required` and the default value are not copied, because
    they concern the property only. If the types differ (all numbers count as one type), nothing is
    copied.
    """
    for at, param in enumerate(params):
        if not param.ref:
            continue
        source = properties.get(param.ref)
        if source is None:
            faults.add(f"{path}[{at}].ref", f"must be the id of a property. Got '{param.ref}'")
        elif _has_same_kind(param.data_spec, source):
            rules = _complete_spec(
                param.data_spec.validator or Validator(), source.validator or Validator()
            )
            param.data_spec = _complete_spec(param.data_spec, source)
            param.data_spec.validator = rules if rules != Validator() else None


def _has_same_kind(spec: DataSpec, source: DataSpec) -> bool:
    kinds = {spec.data_type or source.data_type, source.data_type}
    return len(kinds) == 1 or kinds <= NUMBER_TYPES


def _complete_spec(spec: _T, source: _T) -> _T:
    lacking = {
        name: getattr(source, name)
        for name in spec.__struct_fields__
        if name not in _OWN_FIELDS and getattr(spec, name) in (None, "")
    }
    return replace(spec, **lacking)


def copy_referenced_members(
    params: list[ParamSpec], properties: Sequence[PropertySpec], path: str, faults: Faults
) -> None:
    """Copy members of a referenced STRUCT or ARRAY to parameters that have none.

    Stops when `params` exceeds the maximum of a document.
    """
    specs = {entry.id: entry.data_spec for entry in properties}
    whole: list[ParamSpec] = []
    for at, param in enumerate(params):
        whole.append(param)
        has_members = any(other.id.startswith(f"{param.id}.") for other in params)
        if not param.ref or has_members or param.data_spec.data_type not in CONTAINER_TYPES:
            continue
        copies = _copy_members(param, properties)
        if _kinds(param.data_spec) != _kinds(specs[param.ref]):
            faults.add(
                f"{path}[{at}].ref", f"must be a property of the same type. Got '{param.ref}'"
            )
        elif any(copy.id.count(".") > MAX_DEPTH for copy in copies):
            faults.add(f"{path}[{at}].ref", f"nests members more than {MAX_DEPTH} levels deep")
        else:
            whole += copies
        if len(whole) > MAX_MEMBERS:
            break
    params[:] = whole


def _kinds(spec: DataSpec) -> tuple[str, str | None]:
    return spec.data_type, spec.element_data_type


def _copy_members(param: ParamSpec, properties: Sequence[PropertySpec]) -> list[ParamSpec]:
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


NamedSpec = PropertyOrParamSpec | EventSpec | ServiceSpec
_UNNAMED_ID = "unnamed"
"""Id of an event or service without one, so that it is one fault, not one per parameter."""


def parse_document(raw: bytes | dict[str, Any], *, stored: bool = False) -> TslDocument:
    """Parse a TSL document (device open API, section TSL_Model) and check it completely.

    The result is normalised: types are upper case, `mapping` and `mappings` are both set,
    parameters are named `<owner>.<key>`. `parentId`, `propertyKey`, `elementDataType` and access
    modes of members are completed, and the specifications behind a `ref` copied. Parsing its wire
    form returns the same document. Null lists and unknown fields are accepted. A document that was
    `stored` before may have ids with characters that are rejected in new ones, and invalid property
    keys, which are ignored.
    Raises `TslInvalid` with every fault of the document.
    """
    faults = Faults()
    document = read_struct(TslDocument, _load_json(raw), "", faults)
    _check_count(document)
    _normalise(document, faults)
    _check_members(document, faults)
    _check_owners(document, faults)
    if not stored:
        _check_signs(document, faults)
    wrong_keys = Faults() if stored else faults
    if not faults:
        complete_keys(document.properties, "properties", "", wrong_keys, stored=stored)
        _complete_params(document, faults)
    if not faults:
        for path, owner, params in _params(document):
            complete_keys(params, path, owner, wrong_keys, stored=stored)
    if faults:
        raise TslInvalid(faults.listed())
    if wrong_keys:
        for entry in iterate_entries(document):
            entry.property_key = entry.id
    return document


def _load_json(raw: bytes | dict[str, Any]) -> object:
    if isinstance(raw, dict):
        return raw
    try:
        return json.loads(raw, object_pairs_hook=object_from_pairs, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise TslInvalid([Fault("", f"is not JSON: {error}")]) from error


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _check_count(document: TslDocument) -> None:
    """Reject an oversized document before expensive checks of its members."""
    owners = len(document.events) + len(document.services)
    count = owners + len(document.properties) + sum(len(group) for _, _, group in _params(document))
    if count > MAX_MEMBERS:
        raise TslInvalid([Fault("", f"has {count} members, at most {MAX_MEMBERS} are allowed")])


def _params(document: TslDocument) -> Iterator[tuple[str, str, list[ParamSpec]]]:
    """Yield each list of parameters with its path and the id of its event or service."""
    for at, event in enumerate(document.events):
        yield f"events[{at}].outputs", event.id or _UNNAMED_ID, event.outputs
    for at, service in enumerate(document.services):
        yield f"services[{at}].inputs", service.id or _UNNAMED_ID, service.inputs
        yield f"services[{at}].outputs", service.id or _UNNAMED_ID, service.outputs


def _normalise(document: TslDocument, faults: Faults) -> None:
    for at, entry in enumerate(document.properties):
        normalise_member(entry, f"properties[{at}]", faults)
        entry.access_mode = entry.access_mode.upper()
    for path, owner, params in _params(document):
        for at, param in enumerate(params):
            normalise_member(param, f"{path}[{at}]", faults)
        qualify_params(params, owner)
    for event in document.events:
        event.type = (event.type or "INFO").upper()
    for service in document.services:
        service.call_type = (service.call_type or "ASYNC").upper()


def _check_members(document: TslDocument, faults: Faults) -> None:
    properties = {entry.id: entry.data_spec for entry in document.properties}
    check_members(document.properties, "properties", "", faults)
    complete_access(document.properties, "properties", faults)
    for at, entry in enumerate(document.properties):
        check_spec(entry.data_spec, f"properties[{at}].dataSpec", faults)
    for path, owner, params in _params(document):
        resolve_references(params, properties, path, faults)
        check_members(params, path, owner, faults)
        for at, param in enumerate(params):
            check_spec(param.data_spec, f"{path}[{at}].dataSpec", faults)


def _check_owners(document: TslDocument, faults: Faults) -> None:
    events = [(entry.id, entry.type) for entry in document.events]
    services = [(entry.id, entry.call_type) for entry in document.services]
    _check_owner_list("events", "type", events, EVENT_TYPES, faults)
    _check_owner_list("services", "callType", services, CALL_TYPES, faults)


def _check_owner_list(
    path: str,
    field: str,
    owners: list[tuple[str, str | None]],
    allowed: frozenset[str],
    faults: Faults,
) -> None:
    index_by_id: dict[str, int] = {}
    for at, (owner, mode) in enumerate(owners):
        reason = find_key_fault(owner)
        if reason:
            faults.add(f"{path}[{at}].id", reason)
        elif index_by_id.setdefault(owner, at) != at:
            faults.add(f"{path}[{at}].id", f"repeats {path}[{index_by_id[owner]}].id")
        if mode not in allowed:
            faults.add(f"{path}[{at}].{field}", f"must be one of {', '.join(sorted(allowed))}")


def _check_signs(document: TslDocument, faults: Faults) -> None:
    """Check that ids have no special characters of references to entity keys."""
    named_parts: list[tuple[str, Sequence[NamedSpec]]] = [
        ("properties", document.properties),
        ("events", document.events),
        ("services", document.services),
        *((path, params) for path, _, params in _params(document)),
    ]
    for path, entries in named_parts:
        for at, entry in enumerate(entries):
            reason = find_sign_fault(entry.id)
            if reason:
                faults.add(f"{path}[{at}].id", reason)


def _complete_params(document: TslDocument, faults: Faults) -> None:
    """Copy the members behind each `ref`, while the document stays within its limits."""
    for path, _, params in _params(document):
        copy_referenced_members(params, document.properties, path, faults)
        _check_count(document)
