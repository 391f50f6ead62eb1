"""The thing specification language (TSL): the model of a thing, and checks of its values."""

from libs.common.tsl._check import accepted
from libs.common.tsl._decoders import Event, Report, Values
from libs.common.tsl._write_only import MASK, mask_text, readable_values, texts_beyond
from libs.common.tsl.compiled import CompiledTsl, compile_tsl
from libs.common.tsl.document import (
    DataSpec,
    EventSpec,
    MappingItem,
    MemberSpec,
    ParamSpec,
    PropertySpec,
    ServiceSpec,
    TslDocument,
    Validator,
    by_keys,
    entries_of,
    to_wire,
    with_keys_of_ids,
)
from libs.common.tsl.faults import (
    Fault,
    InvalidValues,
    MalformedReport,
    Refusal,
    TslInvalid,
    UnknownService,
)
from libs.common.tsl.generic import Tsl, generic_tsl
from libs.common.tsl.importing import parse_document
from libs.common.tsl.plausible import plausible_params, plausible_properties

__all__ = [
    "MASK",
    "CompiledTsl",
    "DataSpec",
    "Event",
    "EventSpec",
    "Fault",
    "InvalidValues",
    "MalformedReport",
    "MappingItem",
    "MemberSpec",
    "ParamSpec",
    "PropertySpec",
    "Refusal",
    "Report",
    "ServiceSpec",
    "Tsl",
    "TslDocument",
    "TslInvalid",
    "UnknownService",
    "Validator",
    "Values",
    "accepted",
    "by_keys",
    "compile_tsl",
    "entries_of",
    "generic_tsl",
    "mask_text",
    "parse_document",
    "plausible_params",
    "plausible_properties",
    "readable_values",
    "texts_beyond",
    "to_wire",
    "with_keys_of_ids",
]
