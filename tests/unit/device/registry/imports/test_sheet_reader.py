"""Sheets of devices as spreadsheet programs write them."""

import io
from types import SimpleNamespace
from typing import Any

import pytest
import xlsxwriter

from libs.common.errors import InvalidInput
from libs.common.things import DIRECT_INTEGRATION
from services.device.registry.imports import sheet_reader
from services.device.registry.imports.columns import LATITUDE, LONGITUDE, SheetColumns
from services.device.registry.imports.sheet_reader import (
    COLUMNS,
    DEVICES,
    Sheet,
    SheetUnreadable,
    parse_sheet,
    read_sheet,
)

TITLES = ("name", "sn", "latitude", "longitude")
GERMAN = "Name;SN;Latitude;Longitude\r\nKühlhaus;DE0001;52,5200;13,4050\r\n"
ENGLISH = "Name,SN,Latitude,Longitude\r\nKühlhaus,DE0001,52.52,13.405\r\n"
NO_INPUTS: Any = SimpleNamespace(list_inputs=list)
"""Stands for the inputs of an integration that asks for nothing but the usual columns."""
CELLS = ["Kühlhaus", "DE0001", "52,5200", "13,4050"]


def workbook(*sheets: tuple[str, list[list[Any]]]) -> bytes:
    """An XLSX file."""
    buffer = io.BytesIO()
    with xlsxwriter.Workbook(buffer, {"in_memory": True}) as book:
        for name, rows in sheets:
            if not rows:
                chart = book.add_chart({"type": "line"})
                chart.add_series({"values": "=Notes!$A$1:$A$1"})
                book.add_chartsheet(name).set_chart(chart)
                continue
            page = book.add_worksheet(name)
            for at, row in enumerate(rows):
                page.write_row(at, 0, row)
    return buffer.getvalue()


def refusal(data: bytes) -> str:
    """What is said of a file that is no sheet."""
    with pytest.raises(SheetUnreadable) as caught:
        parse_sheet(data, TITLES)
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "source"),
    [
        (GERMAN.encode("utf-8-sig"), "CSV in UTF-8, divided by semicolons"),
        (GERMAN.encode(), "CSV in UTF-8, divided by semicolons"),
        (GERMAN.encode("cp1252"), "CSV in Windows-1252, divided by semicolons"),
        (GERMAN.encode("utf-16"), "CSV in UTF-16, divided by semicolons"),
        (b"\xfe\xff" + GERMAN.encode("utf-16-be"), "CSV in UTF-16, divided by semicolons"),
        (GERMAN.replace(";", "\t").encode("utf-16"), "CSV in UTF-16, divided by tabs"),
        (f"sep=;\r\n{GERMAN}".encode("cp1252"), "CSV in Windows-1252, divided by semicolons"),
        (f'"sep=;"\n{GERMAN}'.encode(), "CSV in UTF-8, divided by semicolons"),
        (f"SEP=|\r\n{GERMAN}".replace(";", "|").encode(), "CSV in UTF-8, divided by '|'"),
        (GERMAN.replace("\r\n", "\r").encode(), "CSV in UTF-8, divided by semicolons"),
    ],
)
def test_csv_is_read_as_excel_writes_it_anywhere(data, source):
    """Whatever the encoding, the delimiter and the line ends are."""
    sheet = parse_sheet(data, TITLES)
    assert sheet.columns == ["Name", "SN", "Latitude", "Longitude"]
    assert sheet.rows == [(0, CELLS)]
    assert (sheet.source, sheet.decimal_comma) == (source, True)


def test_a_comma_that_divides_is_no_decimal_comma():
    """`1,234` in quotation marks is a thousand and more there."""
    sheet = parse_sheet(ENGLISH.encode(), TITLES)
    assert sheet.rows == [(0, ["Kühlhaus", "DE0001", "52.52", "13.405"])]
    assert (sheet.source, sheet.decimal_comma) == ("CSV in UTF-8, divided by commas", False)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("52,5200", "52.5200"),
        ("-0,5", "-0.5"),
        ("1.234,5", "1234.5"),
        ("1\u00a0234,5", "1234.5"),
        ("1\u2019234,5", "1234.5"),
        ("52.52", "52.52"),
        ("1,2,3", "1,2,3"),
        ("12,3 °", "12,3 °"),
        (5, 5),
        (None, None),
    ],
)
def test_a_number_with_a_decimal_comma_gets_a_point(cell, expected):
    """Texts of other columns keep their commas."""
    columns = SheetColumns(DIRECT_INTEGRATION, NO_INPUTS)
    heads = columns.match_columns(Sheet(["Name", LATITUDE, LONGITUDE], []))
    assert columns.use_decimal_points(heads, ["1,5", cell, None]) == ["1,5", expected, None]


def test_a_workbook_may_have_sheets_of_any_name():
    """The first one with a column that is known counts; columns may be marked as required."""
    data = workbook(
        ("Chart", []),
        ("Notes", [["Read me"], ["Sensors of the cellar"]]),
        ("Tabelle1", [["Name*", "SN *"], ["Roof", "A1"]]),
        ("Old", [["Name"], ["Cellar"]]),
    )
    sheet = parse_sheet(data, TITLES)
    assert (sheet.columns, sheet.rows) == (["Name*", "SN *"], [(0, ["Roof", "A1"])])
    assert sheet.source == "the sheet 'Tabelle1'"


def test_a_hidden_sheet_is_not_read():
    """People do not see what they would import."""
    buffer = io.BytesIO()
    with xlsxwriter.Workbook(buffer, {"in_memory": True}) as book:
        hidden, shown = book.add_worksheet("Old"), book.add_worksheet("New")
        hidden.write_column(0, 0, ["Name", "Cellar"])
        hidden.hide()
        shown.write_column(0, 0, ["Name", "Roof"])
        shown.activate()
    assert parse_sheet(buffer.getvalue(), TITLES).rows == [(0, ["Roof"])]


def test_a_text_that_must_not_become_a_number_is_read_without_its_marks():
    """Exporters write `="001"`, so that spreadsheet programs keep the zeros."""
    assert parse_sheet(b'\r\nName,SN\r\nRoof,"=""001"""\r\n', TITLES).rows == [(0, ["Roof", "001"])]


@pytest.mark.parametrize("cell", ["1,23457E+15", "1.23457e+15", 1234567890123450, 1.2e20])
def test_a_long_number_that_lost_digits_is_no_text(cell):
    """Spreadsheet programs keep 15 digits, and show fewer."""
    columns = SheetColumns(DIRECT_INTEGRATION, NO_INPUTS)
    heads = columns.match_columns(Sheet(["Name", LATITUDE], []))
    _, faults = columns.build_request(heads, [cell, None])
    assert [(fault.column, "digits" in fault.error_message) for fault in faults] == [("name", True)]


def test_other_numbers_are_texts():
    """A serial number of digits alone, for example."""
    columns = SheetColumns(DIRECT_INTEGRATION, NO_INPUTS)
    request, faults = columns.build_request(columns.match_columns(Sheet(["Name"], [])), [123456])
    assert (request.name, faults) == ("123456", [])


def test_the_sheet_of_our_template_comes_before_others():
    """Whatever sheets somebody has put in front of it."""
    rows = [["Name", "SN"], ["Roof", "A1"]]
    data = workbook(("Mine", [["Name"], ["Other"]]), ("DEVICES_LIST", rows))
    assert parse_sheet(data, TITLES).rows == [(0, ["Roof", "A1"])]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", ["empty"]),
        (b"Name;SN\n\x81;1", ["UTF-8", "UTF-16", "Windows-1252", "byte 9", "0x81"]),
        ("Name;SN".encode("utf-16-le"), ["XLSX", "CSV"]),
        (b"\xef\xbb\xbfName;SN\n\xff;1", ["UTF-8", "byte 12 ", "0xFF"]),
        (b"\xff\xfeN", ["UTF-16"]),
        (b'Name;SN\nRoof;1\n"Cellar;2', ["line 3", "CSV"]),
        (b"PK\x03\x04 and nothing else", ["workbook"]),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ["XLSX", "CSV"]),
        (workbook(("Notes", [["x"]]), ("Empty", [])), ["'Notes'", "'Empty'", "column"]),
        ("Name;SN\n温度传感器;1".encode("gbk"), ["Windows-1252", "byte 9 ", "CSV UTF-8"]),
        ("Name;SN\nЛифты;1".encode("cp1251"), ["Windows-1252", "byte 9 ", "CSV UTF-8"]),
        (b"Name,Latitude\nRoof,52,52", ["row 2", "','", "quotation marks"]),
    ],
    ids=[
        *("empty", "bytes", "UTF-16", "UTF-8", "half", "quote", "PK", "PNG", "no column"),
        *("Chinese", "Russian", "cells"),
    ],
)
def test_the_error_of_an_unreadable_sheet_names_the_cause(data, words):
    """It is the encoding, the line or the sheets."""
    text = refusal(data)
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        (["Name", "Naem"], ["'Naem'", "Longitude", "CSV in Windows-1252"]),
        (["Name", "NAME"], ["'NAME'", "duplicate"]),
        (["Latitude"], ["Name is missing"]),
    ],
)
def test_a_wrong_column_is_named(heads, words):
    """With how the file was read, in case that is what is wrong."""
    columns = SheetColumns(DIRECT_INTEGRATION, NO_INPUTS)
    with pytest.raises(InvalidInput) as caught:
        columns.match_columns(Sheet(heads, [], "CSV in Windows-1252"))
    assert [word for word in words if word not in str(caught.value)] == []


def test_rows_beyond_the_most_are_only_counted():
    """Neither is a column kept that is one too many."""
    rows = [
        ["Name", "SN", *(f"x{at}" for at in range(9))],
        *(["Roof", "A1", 1, 2, 3] for _ in range(5)),
    ]
    for data in (
        workbook(("A", rows)),
        "\n".join(",".join(map(str, row)) for row in rows).encode(),
    ):
        sheet = parse_sheet(data, TITLES, 2)
        assert (sheet.total, len(sheet.rows), len(sheet.columns)) == (5, 2, len(TITLES) + 1)


def test_cells_stand_below_their_titles_where_columns_are_left_out():
    """Also where the first column of our template has nothing at all."""
    titles, keys = ["", "Name", "SN"], [[0, "key.0", ""], [1, "Name", ""], [2, "SN", ""]]
    sheet = parse_sheet(workbook((DEVICES, [titles, ["", "Roof", "A1"]]), (COLUMNS, keys)), TITLES)
    assert sheet.rows == [(0, [None, "Roof", "A1"])]


async def test_a_million_rows_cost_no_more_than_those_that_are_allowed():
    """The process that reads them answers with the first ones."""
    rows = ["Name,SN", *("Roof,A1" for _ in range(300_000))]
    sheet = await read_sheet("\n".join(rows).encode(), TITLES, 10)
    assert (sheet.total, len(sheet.rows)) == (300_000, 10)


async def test_the_confined_process_reads_workbooks():
    """It can do so without files, sockets or an environment."""
    sheet = await read_sheet(workbook(("Sheet1", [["Name", "SN"], ["Roof", 1.0]])), TITLES, 10)
    assert sheet.rows == [(0, ["Roof", 1])]


async def test_an_answer_that_is_too_long_is_a_file_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
):
    """It is not decoded."""
    monkeypatch.setattr(sheet_reader, "MAX_SHEET_JSON_BYTES", 100)
    with pytest.raises(SheetUnreadable):
        await read_sheet(b"Name\n" + b"x" * 200, TITLES, 10)
