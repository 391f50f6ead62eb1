"""The thing specification language (TSL): the model of a thing, and checks of its values."""

from libs.common.tsl._check import keep_given
from libs.common.tsl._decoders import Event, Report
from libs.common.tsl._write_only import MASK, list_hidden_texts, mask_text, readable_values
from libs.common.tsl.compiled import CompiledTsl, compile_tsl
from libs.common.tsl.document import (
    DataSpec,
    ParamSpec,
    PropertyOrParamSpec,
    PropertySpec,
    ServiceSpec,
    TslDocument,
    ids_from_keys,
    iterate_entries,
    keys_from_ids,
    to_wire,
)
from libs.common.tsl.faults import (
    Fault,
    InvalidValues,
    MalformedReport,
    Rejection,
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
    "Fault",
    "InvalidValues",
    "MalformedReport",
    "ParamSpec",
    "PropertyOrParamSpec",
    "PropertySpec",
    "Rejection",
    "Report",
    "ServiceSpec",
    "Tsl",
    "TslDocument",
    "TslInvalid",
    "UnknownService",
    "compile_tsl",
    "generic_tsl",
    "ids_from_keys",
    "iterate_entries",
    "keep_given",
    "keys_from_ids",
    "list_hidden_texts",
    "mask_text",
    "parse_document",
    "plausible_params",
    "plausible_properties",
    "readable_values",
    "to_wire",
]
