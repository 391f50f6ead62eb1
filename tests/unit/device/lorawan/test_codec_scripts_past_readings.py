"""Past readings among decoded values."""

from typing import Any

import pytest

from libs.common.tsl import compile_tsl, parse_document
from services.device.lorawan.codec_scripts import extract_past_readings

TSL = compile_tsl(
    parse_document(
        {
            "version": "v1",
            "properties": [{"id": "t", "accessMode": "R", "dataSpec": {"dataType": "FLOAT"}}],
        }
    )
)
AT = 1_700_000_000


def extract(rows: list[Any]) -> tuple[list[Any], list[str]]:
    readings, faults = extract_past_readings({"history": rows}, TSL, 0, AT * 2000)
    return [(ts, values["t"]) for ts, values in readings], [fault.path for fault in faults]


@pytest.mark.parametrize(
    ("row", "path"),
    [
        ({"t": 2}, "history[1]"),
        ({"timestamp": None, "t": 2}, "history[1]"),
        ({"timestamp": "soon", "t": 2}, "history[1]"),
        ({"timestamp": 1e300, "t": 2}, "history[1]"),
        ({"timestamp": AT * 3, "t": 2}, "history[1]"),
        (7, "history[1]"),
        ({"timestamp": AT + 1, "t": None}, "history[1].properties.t"),
        ({"timestamp": AT, "t": 2}, "history[1].t"),
    ],
)
def test_an_invalid_row_rejects_no_other(row: Any, path: str) -> None:
    """An invalid row is a fault with its position, and the others are kept."""
    good = [(AT * 1000, 1.0), ((AT + 9) * 1000, 3.0)]
    rows = [{"timestamp": AT, "t": 1}, row, {"timestamp": AT + 9, "t": 3}]
    assert extract(rows) == (good, [path])


def test_the_time_of_a_row_may_be_text() -> None:
    """The time may be text, in seconds or milliseconds."""
    rows = [{"timestamp": f"{AT}", "t": "1.5"}, {"timestamp": f"{AT * 1000 + 1}", "t": 2}]
    assert extract(rows) == ([(AT * 1000, 1.5), (AT * 1000 + 1, 2.0)], [])
