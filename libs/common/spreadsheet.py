"""CSV (RFC 4180) that spreadsheets open without running anything."""

import csv
import io
from collections.abc import Iterable, Sequence

_FORMULA = (*"=+-@\t\r\n", *"\uff1d\uff0b\uff0d\uff20")
"""A cell that begins with one of these is a formula to spreadsheets, to some in full width too
(OWASP, "CSV Injection")."""


def safe_cell(text: str) -> str:
    """The text, with an apostrophe in front when a spreadsheet would run it."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def plain_cell(text: str) -> str:
    """What `safe_cell` was given."""
    return text[1:] if text[:1] == "'" and text[1:].startswith(_FORMULA) else text


def csv_lines(rows: Iterable[Sequence[str]]) -> bytes:
    """Rows as lines of a file."""
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    return buffer.getvalue().encode()
