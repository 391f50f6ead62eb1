"""Reads a sheet that somebody sent, in a process of its own that is bounded in memory and time.

The file comes on standard input; a `Sheet` as JSON goes to standard output. What kills the process
(archives that unpack without end, a cell in the last row and column) is a file that cannot be read.
"""

import asyncio
import csv
import io
import resource
import sys
from datetime import date, time
from typing import Any

import msgspec

from libs.common.spreadsheet import plain_cell

DEVICES, COLUMNS, OPTIONS = "DEVICES_LIST", "_HIDDEN_COL_META", "_HIDDEN_OPT"
"""Sheets of a workbook: rows of devices, keys of columns, lists behind drop-downs."""
ERROR = "Error"
"""The column that says what is wrong with rows; it is passed over when they are sent again."""
MEMORY = 768 * 1024 * 1024
"""Bytes of address space."""
SECONDS = 20
"""Of processor time, and of waiting for it."""
_ARCHIVE = b"PK\x03\x04"
"""How an XLSX file begins; all else is CSV."""
_AT_ONCE = asyncio.Semaphore(2)


class Sheet(msgspec.Struct):
    """A table: its columns by key, or by what stands above them; rows that are not empty."""

    columns: list[str]
    rows: list[tuple[int, list[Any]]]
    """Each with its place, from 0; cells are texts, numbers, booleans or null."""


class Unreadable(Exception):
    """The file is no sheet."""


async def read_sheet(data: bytes) -> Sheet:
    """The sheet in a file; raise `Unreadable`."""
    async with _AT_ONCE:
        reader = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __name__),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(SECONDS):
                answer, _ = await reader.communicate(data)
        except TimeoutError as error:
            raise Unreadable from error
        finally:
            if reader.returncode is None:
                reader.kill()
                await reader.wait()
    if reader.returncode != 0:
        raise Unreadable
    return msgspec.json.decode(answer, type=Sheet)


def parse(data: bytes) -> Sheet:
    """The sheet in a file, read here; what is wrong with it is raised as it comes."""
    return _workbook(data) if data.startswith(_ARCHIVE) else _text(data)


def _workbook(data: bytes) -> Sheet:
    from python_calamine import CalamineWorkbook  # noqa: PLC0415 - only in the reading process

    book = CalamineWorkbook.from_filelike(io.BytesIO(data))
    table = book.get_sheet_by_name(DEVICES).to_python(skip_empty_area=False)
    head = [str(cell) for cell in table[0]]
    if COLUMNS in book.sheet_names:
        keys = book.get_sheet_by_name(COLUMNS).to_python(skip_empty_area=False)
        head = [str(row[1]) for row in sorted(keys, key=lambda row: float(str(row[0])))]
    return _sheet(head, table[1:])


def _text(data: bytes) -> Sheet:
    text = data.decode("utf-8-sig")
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    table = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    return _sheet(table[0], table[1:])


def _sheet(head: list[str], table: list[list[Any]]) -> Sheet:
    columns = [cell.strip() for cell in head]
    kept = [at for at, column in enumerate(columns) if column not in ("", ERROR)]
    rows = []
    for number, row in enumerate(table):
        cells = [_cell(row[at]) if at < len(row) else None for at in kept]
        if any(cell is not None for cell in cells):
            rows.append((number, cells))
    return Sheet([columns[at] for at in kept], rows)


def _cell(cell: Any) -> Any:
    """Blank cells are null, whole numbers have no fraction, times are text (ISO 8601)."""
    if isinstance(cell, str):
        return plain_cell(cell.strip()) or None
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return cell.isoformat() if isinstance(cell, date | time) else cell


def main() -> None:
    """Read one file within bounds."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    sys.stdout.buffer.write(msgspec.json.encode(parse(sys.stdin.buffer.read())))


if __name__ == "__main__":
    main()
