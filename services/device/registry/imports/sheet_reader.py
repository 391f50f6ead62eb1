"""Reads an uploaded sheet, in a confined process with limited memory and time.

Standard input is the titles of columns and the maximum number of rows, as a line of JSON, followed
by the file. Standard output is a `Sheet` or an `UnreadableReason` as JSON. Rows beyond the maximum
are counted but not returned, so the service need not decode them. A file that kills the process
(archives that unpack without end, a cell in the last row and column) is unreadable.
"""

import asyncio
import codecs
import csv
import io
import re
import resource
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import date, time
from importlib import import_module
from typing import Any

import msgspec

from libs.common.sandbox.confine import confine_process
from libs.common.sandbox.workers import read_output, start_worker, wait_until_killed
from libs.common.spreadsheet import unescape_cell

DEVICES, COLUMNS, OPTIONS = "DEVICES_LIST", "_HIDDEN_COL_META", "_HIDDEN_OPT"
"""Sheets of a workbook: rows of devices, keys of columns, options of drop-downs."""
ERROR_COLUMN = "Error"
"""The column with the faults of rows; it is ignored when a sheet is imported."""
MAX_ADDED_MEMORY_BYTES = 160 * 1024 * 1024
"""Bytes of memory in addition to the interpreter and its libraries."""
MAX_SHEET_JSON_BYTES = 32 * 1024 * 1024
"""Maximum bytes of a sheet as JSON: six times a file, as workbooks are compressed."""
MAX_READ_SECONDS = 20
"""Limit of processor time, and of waiting for the process."""
_WORKBOOK_SIGNATURES = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
"""First bytes of workbooks; other files are CSV."""
_ENCODING_BY_BOM = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
"""Encoding of a text by its byte order mark."""
_DISPLAY_NAME_BY_ENCODING = {
    "utf-8": "UTF-8",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
    "cp1252": "Windows-1252",
}
"""Name that users see, by encoding."""
_DELIMITERS = ",;\t"
_FOREIGN_LETTERS = re.compile(r"[^\x00-\x7f\s\u20ac\xb0\xab\xbb\u2013-\u2026]{4}")
"""Four characters that no language of Windows-1252 has in a row: text of another code page."""
_QUOTED_TEXT = re.compile(r'="([^"]*)"')
"""Text that spreadsheet programs must not convert to a number: `="001"`."""
_UNREADABLE_TEXT = "cannot be read: it is damaged, or unpacks to more than is allowed"


class Sheet(msgspec.Struct, tag=True):
    """A table: column keys or titles, and rows that are not empty."""

    columns: list[str]
    rows: list[tuple[int, list[Any]]]
    """Each with its position, from 0; cells are texts, numbers, booleans or null."""
    source: str = ""
    """The name of the sheet, or encoding and delimiter of a CSV."""
    total: int = 0
    """The number of rows that are not empty; `rows` has the first ones."""
    decimal_comma: bool = False
    """Whether numbers in texts may have a decimal comma: the delimiter is no comma."""


class UnreadableReason(msgspec.Struct, tag=True):
    """The reason why a file is no sheet, for the user who sent it."""

    reason: str


class SheetUnreadable(Exception):
    """The file is no sheet; the message is the reason."""


async def read_sheet(data: bytes, titles: Collection[str], maximum: int) -> Sheet:
    """Return the sheet in a file, with its first `maximum` rows; raise `SheetUnreadable`.

    In a workbook, this is the sheet `DEVICES_LIST` of the template, or else the first sheet whose
    first row contains one of `titles` (ignoring case).
    """
    request = msgspec.json.encode((list(titles), maximum)) + b"\n" + data
    reader = await start_worker(__name__, largest=MAX_SHEET_JSON_BYTES)
    try:
        async with asyncio.timeout(MAX_READ_SECONDS):
            answer = await read_output(reader, request, MAX_SHEET_JSON_BYTES)
    except (TimeoutError, OSError) as error:
        raise SheetUnreadable(_UNREADABLE_TEXT) from error
    finally:
        if reader.returncode is None:
            reader.kill()
            await wait_until_killed(reader)
    if reader.returncode != 0:
        raise SheetUnreadable(_UNREADABLE_TEXT)
    result = msgspec.json.decode(answer, type=Sheet | UnreadableReason)
    if isinstance(result, UnreadableReason):
        raise SheetUnreadable(result.reason)
    return result


def parse_sheet(data: bytes, titles: Collection[str], maximum: int = sys.maxsize) -> Sheet:
    """Return the sheet in a file with its first `maximum` rows; raise `SheetUnreadable`."""
    read = _read_workbook if data.startswith(_WORKBOOK_SIGNATURES) else _read_csv
    head, rows, about = read(data, titles)
    columns = [cell.strip() for cell in head]
    kept_columns = [at for at, column in enumerate(columns) if column not in ("", ERROR_COLUMN)]
    del kept_columns[
        len(titles) + 1 :
    ]  # with more columns, one of the kept columns is unknown or duplicate
    sheet = Sheet([columns[at] for at in kept_columns], [], **about)
    for number, row in enumerate(rows):
        cells = [_normalize_cell(row[at]) if at < len(row) else None for at in kept_columns]
        if any(cell is not None for cell in cells):
            sheet.total += 1
            if sheet.total <= maximum:
                sheet.rows.append((number, cells))
    return sheet


ParsedTable = tuple[list[str], Iterable[Sequence[Any]], dict[str, Any]]
"""The first row of a table, its other rows, and further fields of `Sheet`."""


def _read_workbook(data: bytes, titles: Collection[str]) -> ParsedTable:
    from python_calamine import (  # noqa: PLC0415 - only in the reading process
        CalamineError,
        CalamineWorkbook,
        SheetVisibleEnum,
    )

    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(data))
    except CalamineError as error:
        raise SheetUnreadable(f"is no readable workbook (XLSX): {error}") from error
    folded_titles = {title.casefold() for title in titles}
    names = [
        sheet.name
        for sheet in book.sheets_metadata
        if sheet.visible == SheetVisibleEnum.Visible and sheet.name not in (COLUMNS, OPTIONS)
    ]
    for name in [DEVICES] if DEVICES in names else names:
        page = book.get_sheet_by_name(name)
        before = [""] * page.start[1] if page.start else []
        rows = ([*before, *row] for row in page.iter_rows())
        head = [str(cell) for cell in next(rows, ())]
        if name == DEVICES and COLUMNS in book.sheet_names:
            keys = book.get_sheet_by_name(COLUMNS).to_python(skip_empty_area=False)
            head = [str(row[1]) for row in sorted(keys, key=lambda row: float(str(row[0])))]
        if not folded_titles.isdisjoint(map(normalize_title, head)):
            return head, rows, {"source": f"the sheet {name!r}"}
    sheets = ", ".join(repr(name[:31]) for name in names[:10])
    raise SheetUnreadable(f"has no sheet whose first row names a column; its sheets are {sheets}")


def _read_csv(data: bytes, _: Collection[str]) -> ParsedTable:
    text, encoding = _decode_text(data)
    delimiter, text = _split_delimiter(text.lstrip("\r\n"))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        table = list(reader)
    except csv.Error as error:
        raise SheetUnreadable(
            f"line {reader.line_num} of the CSV cannot be read: {error}"
        ) from error
    if not table:
        raise SheetUnreadable("is empty")
    for number, row in enumerate(table, 1):
        if any(cell.strip() for cell in row[len(table[0]) :]):
            raise SheetUnreadable(
                f"row {number} has more cells than the first one; "
                f"put texts with {delimiter!r} in quotation marks"
            )
    names = {",": "commas", ";": "semicolons", "\t": "tabs"}
    source = f"CSV in {encoding}, divided by {names.get(delimiter, repr(delimiter))}"
    return table[0], table[1:], {"source": source, "decimal_comma": delimiter != ","}


def _decode_text(data: bytes) -> tuple[str, str]:
    """Return the text of a file and the name of its encoding.

    Spreadsheet programs write UTF-8, UTF-16 with a byte order mark, or the code page of the
    computer, which is Windows-1252 in most of Europe and America.
    """
    mark = next((mark for mark in _ENCODING_BY_BOM if data.startswith(mark)), b"")
    for encoding in [_ENCODING_BY_BOM[mark]] if mark else ["utf-8", "cp1252"]:
        try:
            text = data[len(mark) :].decode(encoding)
        except UnicodeDecodeError as error:
            at = error.start + len(mark)
            continue
        if "\0" in text:
            raise SheetUnreadable("is neither a workbook (XLSX) nor a text (CSV)")
        if encoding == "cp1252" and (match := _FOREIGN_LETTERS.search(text)):
            at = match.start()
            break
        return text, _DISPLAY_NAME_BY_ENCODING[encoding]
    place = f"byte {at + 1} is 0x{data[at]:02X}"
    if mark:
        name = _DISPLAY_NAME_BY_ENCODING[_ENCODING_BY_BOM[mark]]
        raise SheetUnreadable(
            f"begins with the mark of {name}, and {place}, which is none of {name}"
        )
    raise SheetUnreadable(
        "is no text in UTF-8, UTF-16 with a byte order mark or Windows-1252: "
        f"{place}. Save it as CSV UTF-8"
    )


def _split_delimiter(text: str) -> tuple[str, str]:
    """Return the delimiter, and the text after an optional line `sep=` of Excel."""
    first, *others = re.split("\r\n|\r|\n", text, maxsplit=1)
    line = first.strip('"')
    if len(line) == len("sep=") + 1 and line.lower().startswith("sep="):
        return line[-1], "".join(others)
    return max(
        _DELIMITERS, key=lambda delimiter: len(next(csv.reader([first], delimiter=delimiter)))
    ), text


def normalize_title(head: str) -> str:
    """Return the title of a column for comparison, without the mark `*`."""
    return head.strip().removesuffix("*").strip().casefold()


def _normalize_cell(cell: Any) -> Any:
    """Return a cell: null if blank, whole numbers as int, times as ISO 8601 text."""
    if isinstance(cell, str):
        return unescape_cell(_QUOTED_TEXT.sub(r"\1", cell.strip())) or None
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return cell.isoformat() if isinstance(cell, date | time) else cell


def main() -> None:
    """Read one file, confined and limited."""
    header, _, data = sys.stdin.buffer.read().partition(b"\n")
    import_module("python_calamine")
    for encoding in _DISPLAY_NAME_BY_ENCODING:
        codecs.lookup(encoding)
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_READ_SECONDS, MAX_READ_SECONDS))
    confine_process(MAX_ADDED_MEMORY_BYTES)
    result: Sheet | UnreadableReason
    try:
        result = parse_sheet(data, *msgspec.json.decode(header, type=tuple[list[str], int]))
    except SheetUnreadable as error:
        result = UnreadableReason(str(error))
    sys.stdout.buffer.write(msgspec.json.encode(result))
