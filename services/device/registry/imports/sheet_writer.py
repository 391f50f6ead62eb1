"""Writes sheets of devices: XLSX with drop-downs and bounds, or CSV."""

import io
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, Literal

from libs.common.spreadsheet import encode_csv, escape_cell
from services.device.registry.imports.columns import Column
from services.device.registry.imports.sheet_reader import COLUMNS, DEVICES, OPTIONS

SheetFormat = Literal["xlsx", "csv"]
MEDIA_TYPE = "application/octet-stream"
"""The media type of sheets: client generators know no other type for files."""
LAST_VALIDATED_ROW = 10_000
"""The last row with drop-downs and bounds."""
COLUMN_WIDTH = 24
_REQUIRED_FORMAT = {"num_format": '@" *"', "bold": True}
"""Shows a star after the text of a cell."""


def write_sheet(
    file_format: SheetFormat, columns: Sequence[Column], rows: Iterable[Sequence[Any]], *more: str
) -> bytes:
    """Return a sheet with `columns`, then columns with the titles `more`.

    Values are replaced by their labels, except in columns that also accept other values.
    """
    titles = [*(column.title for column in columns), *more]
    labels = [
        {} if column.free else {value: label for label, value in column.choices.items()}
        for column in columns
    ]
    labels += [{} for _ in more]
    labelled_rows = ([_cell_label(*cell) for cell in zip(labels, row, strict=True)] for row in rows)
    if file_format == "csv":
        return encode_csv([titles, *([_cell_text(cell) for cell in row] for row in labelled_rows)])
    return _write_workbook(columns, titles, labelled_rows)


def _cell_label(labels: dict[str, str], cell: Any) -> Any:
    return labels.get(cell, cell) if isinstance(cell, str) else cell


def _cell_text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return str(cell).upper()
    return escape_cell(cell) if isinstance(cell, str) else str(cell)


def _write_workbook(
    columns: Sequence[Column], titles: Sequence[str], rows: Iterable[Sequence[Any]]
) -> bytes:
    import xlsxwriter  # noqa: PLC0415 - rare, and it needs 2 MiB

    target = io.BytesIO()
    options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(target, options) as book:
        bold, required = book.add_format({"bold": True}), book.add_format(_REQUIRED_FORMAT)
        sheet = book.add_worksheet(DEVICES)
        keys, lists = book.add_worksheet(COLUMNS), book.add_worksheet(OPTIONS)
        sheet.freeze_panes(1, 0)
        sheet.set_column(0, len(titles) - 1, COLUMN_WIDTH)
        for at, title in enumerate(titles):
            needed = at < len(columns) and columns[at].required
            sheet.write_string(0, at, title, required if needed else bold)
        for at, column in enumerate(columns):
            keys.write_row(at, 0, [at, column.key, column.title])
            if (rule := _validation_rule(column, at)) is not None:
                sheet.data_validation(1, at, LAST_VALIDATED_ROW, at, rule)
        for number, labels in enumerate(zip_longest(*(column.choices for column in columns))):
            lists.write_row(
                number, 0, [None if label is None else escape_cell(label) for label in labels]
            )
        for number, row in enumerate(rows, 1):
            for at, cell in enumerate(row):
                if isinstance(cell, str):
                    sheet.write_string(number, at, escape_cell(cell))
                elif cell is not None:
                    sheet.write(number, at, cell)
        for hidden in (keys, lists):
            hidden.hide()
    return target.getvalue()


def _validation_rule(column: Column, at: int) -> dict[str, Any] | None:
    """Return the validation rule of a column for spreadsheet programs, if any."""
    from xlsxwriter.utility import xl_col_to_name  # noqa: PLC0415 - as above

    if column.choices:
        letters = xl_col_to_name(at, col_abs=True)
        source = f"={OPTIONS}!{letters}$1:{letters}${len(column.choices)}"
        strict = "warning" if column.free else "stop"
        return {"validate": "list", "source": source, "error_type": strict}
    if column.kind == "BOOLEAN":
        return {"validate": "list", "source": ["TRUE", "FALSE"]}
    if column.bounds is not None:
        low, high = column.bounds
        kind = "integer" if column.kind == "LONG" else "decimal"
        return {"validate": kind, "criteria": "between", "minimum": low, "maximum": high}
    return None
