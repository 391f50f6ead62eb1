"""The words that existing consoles have for error codes, as far as they have placeholders.

From the English texts of the console at v1.3.1 (`packages/locales/src/lang/en/error.json`).
"""

from typing import Any

BOUNDS = ("entity_name", "value", "min", "max")
PLACEHOLDERS: dict[str, tuple[str, ...]] = {
    "device_list_sheet_device_over_limitation": ("limitation",),
    "device_list_sheet_parsing_value_error": ("entity_name", "expected_type"),
    "entity_rounded_value_greater_than_max": (*BOUNDS, "fraction_digits", "rounded_value"),
    "entity_rounded_value_less_than_min": (*BOUNDS, "fraction_digits", "rounded_value"),
    "entity_rounded_value_out_of_range": (*BOUNDS, "fraction_digits", "rounded_value"),
    "entity_value_greater_than_max": ("entity_name", "value", "max"),
    "entity_value_invalid_enum": ("entity_name",),
    "entity_value_length_invalid_enum": ("entity_name", "length_range"),
    "entity_value_length_longer_than_max_length": ("entity_name", "max_length"),
    "entity_value_length_out_of_range": ("entity_name", "min_length", "max_length"),
    "entity_value_length_shorter_than_min_length": ("entity_name", "min_length"),
    "entity_value_less_than_min": ("entity_name", "value", "min"),
    "entity_value_not_match_format": ("entity_name", "format"),
    "entity_value_not_match_type": ("entity_name", "required_type"),
    "entity_value_null": ("entity_name",),
    "entity_value_out_of_range": BOUNDS,
    "entity_value_validation_error": ("entity_name",),
    "gateway_respond_error": ("error",),
    "msc_api_error": ("msg",),
    "parameter_greater_than_max_value": ("field", "value"),
    "parameter_less_than_min_value": ("field", "value"),
    "parameter_must_be_a_email_address": ("field",),
    "parameter_must_not_be_blank": ("field",),
    "parameter_must_not_be_empty": ("field",),
    "parameter_must_not_be_null": ("field",),
    "parameter_pattern_invalid": ("field", "regex"),
    "parameter_size_invalid": ("field", "min", "max"),
}


def check_placeholders(body: dict[str, Any]) -> None:
    """Check that a refusal fills the texts that consoles show for it."""
    data = body.get("data")
    faults = data if body["error_code"] == "multiple_error" and isinstance(data, list) else []
    for code, args in [
        (body["error_code"], data),
        *((fault["error_code"], fault.get("args")) for fault in faults),
    ]:
        assert missing_arguments(code, args) == [], body


def missing_arguments(code: str, args: Any) -> list[str]:
    """Return the placeholders in the text of `code` that `args` leave empty."""
    given = args if isinstance(args, dict) else {}
    return [name for name in PLACEHOLDERS.get(code, ()) if given.get(name) in (None, "")]
