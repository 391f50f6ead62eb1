"""A TSL document compiled for checks: fast for valid values, exact for invalid ones."""

from collections.abc import Mapping
from functools import cached_property

import msgspec

from libs.common.tsl._check import (
    check_given_members,
    check_members,
    check_value,
    keep_valid_parts,
    merge_value,
    partial_view,
    remove_read_only,
    settable_view,
    writable_view,
)
from libs.common.tsl._decoders import (
    Event,
    Report,
    Values,
    decode_checked_report,
    properties_type,
    read_event,
    report_decoder,
)
from libs.common.tsl._node import (
    Node,
    build_rounders,
    build_tree,
    convert_to_booleans,
    find_boolean_places,
    parse_members,
    round_members,
)
from libs.common.tsl._write_only import (
    conceal_fault,
    mask_fault,
    mask_named_values,
    mask_write_only,
    members_by_path,
    omit_write_only,
    without_write_only,
    write_only_names,
    write_only_paths,
)
from libs.common.tsl.document import (
    TslDocument,
    ids_from_keys,
)
from libs.common.tsl.faults import (
    Fault,
    InvalidValues,
    MalformedReport,
    UnknownService,
    require_object,
)
from libs.common.tsl.generic import Tsl
from libs.common.tsl.limits import MAX_KEY_LENGTH


class CompiledTsl(Tsl):
    """Checks values against a document; see `Tsl` for the methods.

    Create it with `compile_tsl` and keep it: compiling costs about 20 µs per member, a report about
    1 µs. It has no state of devices and may be shared by threads.
    """

    def __init__(self, document: TslDocument) -> None:
        super().__init__(document)
        document = ids_from_keys(document)
        self._tree = build_tree(document.properties)
        self._reported = {key: partial_view(node) for key, node in self._tree.items()}
        self._concealing = {key: node for key, node in self._tree.items() if node.conceals}
        self.conceals = bool(self._concealing)
        self._type = properties_type(without_write_only(self._reported))
        self._decoder = report_decoder(self._type)
        self._flat = all(map(_is_flat, self._reported.values()))
        self._booleans = find_boolean_places(self._reported)
        self._rounders = build_rounders(self._reported)
        writable = {key: node for key, node in self._tree.items() if node.writable}
        self._writable = {key: writable_view(node) for key, node in writable.items()}
        self._properties = {spec.id: spec for spec in document.properties}
        ids = members_by_path(build_tree(self.document.properties))
        self._hidden = {path: node for path, node in ids.items() if path not in self._properties}
        self._hidden |= members_by_path(self._tree)
        self._events = {spec.id: spec for spec in document.events}
        self._services = {spec.id: spec for spec in document.services}
        self._outputs = {spec.id: build_tree(spec.outputs, spec.id) for spec in document.events}
        self._params = {
            path: {spec.id: build_tree(getattr(spec, path), spec.id) for spec in document.services}
            for path in ("inputs", "outputs")
        }

    def decode_report(self, raw: bytes) -> Report:
        """Decode and check a report: in one pass if it is valid, else fault by fault."""
        try:
            wire = self._decoder.decode(raw)
        except (ValueError, RecursionError):
            return decode_checked_report(raw, self.check_report)
        properties = self._round_values(wire.properties)
        if not properties:
            raise MalformedReport("must not be empty", "properties")
        return Report(wire.ts, properties, [])

    def check_report(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Return the valid properties and the faults of the others."""
        faults: list[Fault] = []
        good = check_given_members(self._reported, properties, "properties", faults)
        return good, self._conceal_faults(properties, faults)

    @cached_property
    def _settable(self) -> dict[str, Node]:
        return {key: settable_view(node) for key, node in self._tree.items()}

    def check_settings(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Return the valid settings, including write-only ones, and the faults of the others."""
        faults: list[Fault] = []
        good = check_given_members(self._settable, properties, "properties", faults)
        return good, self._conceal_faults(properties, faults)

    def readable(self, values: Values) -> Values:
        """Return `values` without write-only members, found by key, id or dotted path."""
        return omit_write_only(self._hidden, values) if self._hidden else values

    def write_only_paths(self) -> list[str]:
        """Return the write-only members as paths of MongoDB."""
        return write_only_paths(self._concealing)

    @cached_property
    def _hidden_names(self) -> frozenset[str]:
        return write_only_names(self._hidden)

    def masked(self, values: Values) -> Values:
        """Return `values` with masked write-only members.

        Values below the name of such a member are also masked elsewhere, because a thing may nest
        them wrongly.
        """
        if not self._hidden:
            return values
        masked: Values = mask_named_values(
            self._hidden_names, mask_write_only(self._hidden, values)
        )
        return masked

    def _conceal_faults(self, properties: Values, faults: list[Fault]) -> list[Fault]:
        """Return the faults without values that have the name of a write-only member.

        An unknown value that contains such a name also counts as write-only.
        """
        if not self._hidden:
            return faults
        return [conceal_fault(self._hidden_names, properties, fault) for fault in faults]

    def check_decoded(self, properties: Values) -> tuple[Values, list[Fault]]:
        """Return the valid values of a codec, and the faults of the others.

        Booleans may be 0 and 1, numbers may be text. Valid members of a STRUCT are kept if
        others are invalid.
        """
        values = convert_to_booleans(self._booleans, properties)
        if self._flat:  # otherwise, members of STRUCTs would be reordered
            try:
                good = self._round_values(msgspec.convert(values, self._type))
            except ValueError:
                pass
            else:
                return {key: good[key] for key in values}, []
        faults: list[Fault] = []
        values = parse_members(self._reported, values)
        good = check_given_members(self._reported, values, "properties", faults, keep_parts=True)
        return good, self._conceal_faults(properties, faults)

    def _round_values(self, wire: msgspec.Struct) -> Values:
        """Return the decoded values with rounded numbers."""
        properties: Values = msgspec.to_builtins(wire)
        return round_members(self._rounders, properties)

    def decode_event(self, raw: bytes) -> Event:
        """Decode and check an event."""
        wire = read_event(raw)
        members = self._outputs.get(wire.event_id)
        if members is None:
            reason = f"'{wire.event_id[:MAX_KEY_LENGTH]}' is not an event of this thing"
            raise MalformedReport(reason, "eventId")
        return Event(wire.ts, wire.event_id, _validate(members, wire.outputs, "outputs"))

    def check_write(self, properties: Values, current: Values) -> Values:
        """Return the values of a write, with partial STRUCTs completed from `current`.

        Raises `InvalidValues`.
        """
        require_object(properties, "properties")
        if not properties:
            raise InvalidValues([Fault("properties", "must not be empty")])
        faults: list[Fault] = []
        values = {
            key: self._check_written(key, value, current.get(key), faults)
            for key, value in properties.items()
        }
        if faults:
            raise InvalidValues(self._conceal_faults(properties, faults))
        return values

    def writable(self, values: Values) -> Values:
        """Return the parts of stored `values` that a write would accept."""
        whole: Values = {}
        for key, value in values.items():
            node = self._writable.get(key)
            if node is not None:
                whole.update(keep_valid_parts(key, node, value))
        return whole

    def _check_written(
        self, key: str, sent: object, current: object, faults: list[Fault]
    ) -> object:
        path = f"properties.{key[:MAX_KEY_LENGTH]}"
        node = self._writable.get(key)
        if node is None:
            reason = "is read-only" if key in self._tree else "is not known"
            faults.append(Fault(path, reason))
            return None
        allowed = remove_read_only(self._tree[key], sent, path, faults)
        before = len(faults)
        checked = check_value(node, merge_value(node, current, allowed), path, faults)
        if node.conceals:
            faults[before:] = map(mask_fault, faults[before:])
        return checked

    def _check_params(self, service_id: str, values: Values | None, path: str) -> Values:
        trees = self._params[path]
        if service_id not in trees:
            raise UnknownService(service_id)
        return _validate(trees[service_id], values, path)


def compile_tsl(document: TslDocument) -> CompiledTsl:
    """Return the compiled form of a parsed document; call it once per version."""
    return CompiledTsl(document)


def _is_flat(node: Node) -> bool:
    """Return whether values of a node have no members."""
    return node.kind != "STRUCT" and (node.element is None or _is_flat(node.element))


def _validate(members: Mapping[str, Node], values: Values | None, path: str) -> Values:
    values = {} if values is None else values
    require_object(values, path)
    faults: list[Fault] = []
    checked = check_members(members, values, path, faults)
    if faults:
        raise InvalidValues(faults)
    return checked
