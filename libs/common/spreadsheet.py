"""CSV (RFC 4180) whose cells spreadsheets do not execute."""

import csv
import io
from collections.abc import Iterable, Sequence

_FORMULA_STARTS = (*"=+-@\t\r\n", *"\uff1d\uff0b\uff0d\uff20")
"""Characters at the beginning of a cell that spreadsheets treat as a formula, some in full width
(OWASP, "CSV Injection")."""


def escape_cell(text: str) -> str:
    """Return the text, with a leading apostrophe if a spreadsheet would execute it."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def unescape_cell(text: str) -> str:
    """Return the original text of `escape_cell`."""
    return text[1:] if text[:1] == "'" and text[1:].startswith(_FORMULA_STARTS) else text


def encode_csv(rows: Iterable[Sequence[str]]) -> bytes:
    """Return rows as CSV in UTF-8; the caller has escaped the cells (`escape_cell`)."""
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    return buffer.getvalue().encode()
