"""Analysis of the text of scripts."""

import pytest

from services.device.lorawan.codec_source import COMMON_PROTOTYPES, analyse_script


@pytest.mark.parametrize(
    ("source", "changeable"),
    [
        ("Math.round(1); Array.isArray([]); new Date(0); x instanceof Map", []),
        ("var at = Object.prototype.hasOwnProperty; Array.prototype.slice.call(bytes, 1)", []),
        ("class Broken extends Error { constructor() { super('x') } }", []),
        ("// Math.round = 1\nvar text = 'Math.round = 1', pattern = /Math.round = '/g;", []),
        ("Math.round = 1", ["Math", "Math.prototype"]),
        ("delete Math.round", ["Math", "Math.prototype"]),
        ("Math.count += 1", ["Math", "Math.prototype"]),
        ("Math['round'] = 1", ["Math", "Math.prototype"]),
        ("const maths = Math;", ["Math", "Math.prototype"]),
        ("`${Math.round = 1} Array.x = 1`", ["Math", "Math.prototype"]),
        ("Object.defineProperty(String.prototype, 'x', {})", ["String.prototype"]),
        ("Array.prototype.includes || (Array.prototype.includes = f)", ["Array.prototype"]),
        ("var url = 'https://x'; Array.prototype.x = 1", ["Array.prototype"]),
        ("s.replace(/\"/g, ''); Array.prototype.x = '\"'", ["Array.prototype"]),
        ("result.values = []", ["Array.prototype"]),
        ("bytes.__proto__.x = 1", sorted(COMMON_PROTOTYPES)),
        ("Object.getPrototypeOf(bytes)", sorted(COMMON_PROTOTYPES)),
        ("globalThis['Math'].round = 1", ["Math", "Math.prototype"]),
        ("Function('Math.round = 1')()", ["Math", "Math.prototype"]),
        ("const kind = bytes.constructor; kind.prototype.x = 1", sorted(COMMON_PROTOTYPES)),
        ("if (x.constructor === y) this.constructor = z", []),
        ("function Buffer() {} Buffer.prototype.x = 1", []),
    ],
)
def test_built_in_objects_that_a_script_changes_are_found(
    source: str, changeable: list[str]
) -> None:
    """Calls, reads, comments and strings do not count."""
    assert analyse_script(source).changeable == changeable


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("function help() {} var n = 1; help()", []),
        ("function help() {} var n = 1; this.help()", ["help"]),
        ("function help() {} var n = 1; globalThis[name]", ["help", "n"]),
        ("function help() {} Function('return help()')", ["help"]),
        ("function Point() { var x; this.x = 1 }", []),
        ("var a = 1, b = {c: 2}, d; this.a, this.b, this.c, this.d", ["a", "b", "d"]),
    ],
)
def test_names_reached_through_the_global_object_are_found(source: str, names: list[str]) -> None:
    """Only names declared outside functions count."""
    assert analyse_script(source).globals == names


def test_built_in_names_that_a_script_replaces_are_found() -> None:
    """`var` and assignments count; `let` and `const` do not."""
    source = "var console = console || {}; parseInt = 1; let Math = 2; globalThis.Date = 3;"
    script = analyse_script(source)
    assert (script.parameters, script.replaced) == (["console"], ["Date", "console", "parseInt"])


@pytest.mark.parametrize(
    ("source", "strict"),
    [("'use strict'; x", True), ('/* a */ // b\n "use strict"', True), ("x; 'use strict'", False)],
)
def test_the_strict_mode_of_a_script_is_found(source: str, strict: bool) -> None:
    """Only a directive at the start counts."""
    assert analyse_script(source).strict == strict
