"""Loaded codecs: their results, and the isolation of calls."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.device.lorawan.codec_context import CodecInterrupted, LoadedCodec, ScriptInspector
from services.device.lorawan.codec_source import ALL_BUILT_INS
from services.device.things.codec_model import Codec, CodecArgument, CodecFailed, CodecStep

PORT, AT = 85, 1_700_000_000_000


def codec(source: str, entry: str = "Decode", changeable: list[str] | None = None) -> LoadedCodec:
    """Return a codec of one script with the older entry point."""
    args = [
        CodecArgument("fPort"),
        CodecArgument("bytes", payload=True),
        CodecArgument("variables"),
    ]
    step = CodecStep("codec.js", entry, args)
    script = Codec(scripts={"codec.js": source}, decoder=[step], encoder=[step])
    return LoadedCodec(script, changeable)


def codecs_of(name: str) -> list[str]:
    """Return the codecs of a file, one per line."""
    lines = Path(__file__).with_name(name).read_text().splitlines()
    return [line for line in lines if not line.startswith("//")]


def decode(source: str) -> object:
    return codec(f"function Decode(port, bytes) {{ {source} }}").decode(b"\x01\x02", PORT, AT)


def test_a_payload_becomes_bytes() -> None:
    """A decoder receives the port and an array of numbers."""
    assert decode("return {port, bytes}") == {"port": PORT, "bytes": [1, 2]}


def test_functions_of_several_scripts_follow_each_other() -> None:
    """Each function receives the result of the previous one."""
    payload = [CodecArgument("x", payload=True)]
    steps = [CodecStep("a.js", "go", payload), CodecStep("b.js", "go", payload)]
    scripts = {
        "a.js": "function go(x) { return x.length }",
        "b.js": "function go(x) { return x * 10 }",
    }
    assert LoadedCodec(Codec(scripts=scripts, decoder=steps)).decode(b"abc", PORT, AT) == 30


def test_the_alliances_entry_points_get_what_they_are_promised() -> None:
    """TS013 entry points receive bytes, port and the time of the frame."""
    step = CodecStep("codec.js", "decodeUplink", [CodecArgument("input")])
    source = (
        "function decodeUplink(input) {"
        " return {data: {sum: input.bytes[0] + input.fPort, at: input.recvTime.getTime()}} }"
    )
    loaded = LoadedCodec(Codec(scripts={"codec.js": source}, decoder=[step]))
    assert loaded.decode(b"\x01", PORT, AT) == {"data": {"sum": 86, "at": AT}}


def test_values_are_encoded() -> None:
    """An encoder receives values and returns bytes."""
    source = "function Encode(port, values) { return [values.on ? 1 : 0, port] }"
    assert codec(source, "Encode").encode({"on": True}, PORT, AT) == [1, PORT]


@pytest.mark.parametrize("changeable", [None, ALL_BUILT_INS], ids=["named", "all"])
@pytest.mark.parametrize("source", codecs_of("kept.js"))
def test_no_call_leaves_anything_for_the_next(source: str, changeable: list[str] | None) -> None:
    """A second call returns the same as the first, whatever the script changes."""
    loaded = codec(source, changeable=changeable)
    answers = []
    for _ in range(3):
        try:
            answers.append(loaded.decode(b"\x01", PORT, AT))
        except CodecFailed as error:
            answers.append(str(error))
        if loaded.spent:
            loaded = codec(source, changeable=changeable)
    assert answers[1] == answers[0] == answers[2]


def test_all_that_calls_share_is_frozen() -> None:
    """All objects that calls share are frozen."""
    source = Path(__file__).with_name("walk.js").read_text()
    assert codec(source, changeable=[]).decode(b"", PORT, AT) == [True]


@pytest.mark.parametrize(
    "code",
    [
        "Object.setPrototypeOf(globalThis, {leak: 1})",
        "globalThis.__proto__ = {leak: 1}",
        "Object.preventExtensions(globalThis)",
        "Object.freeze(Array.prototype)",
        "delete String.prototype.at",
        "Object.setPrototypeOf(Math, {leak: 1})",
        "Object.defineProperty(Math, 'abs', {value: 1, configurable: false})",
    ],
)
def test_changes_that_cannot_be_undone_end_the_context(code: str) -> None:
    """After such a change the result is kept, and the context is replaced."""
    loaded = codec(f"function Decode() {{ {code}; return 1 }}")
    assert loaded.decode(b"", PORT, AT) == 1
    assert loaded.spent


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("while (true) {}", "too long"),
        ("for (;;) try { while (true) {} } catch (e) {}", "too long"),
        ("const a = []; while (true) a.push(new Array(1000).fill('x'))", "memory|too long"),
        ("return 'x'.repeat(2 ** 29)", "memory|invalid string length"),
    ],
)
def test_a_call_that_takes_too_much_is_interrupted(code: str, reason: str) -> None:
    """Endless loops and memory use are interrupted."""
    with pytest.raises(CodecInterrupted, match=reason):
        decode(code)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("throw new Error('no such channel')", "no such channel"),
        ("throw 7", "7"),
        ("throw {toJSON() { throw 1 }}", "no text"),
        ("return bytes.a.b", "undefined"),
        ("return recurse(); function recurse() { return recurse() + 1 }", "stack"),
        ("return 'x'.repeat(70000)", "65536 characters"),
    ],
)
def test_a_thrown_error_is_the_fault(code: str, reason: str) -> None:
    """The text of a thrown error is the fault."""
    with pytest.raises(CodecFailed, match=reason):
        decode(code)


@pytest.mark.parametrize("code", ["return", "return undefined", "return () => 1", "return NaN"])
def test_a_result_without_json_is_null(code: str) -> None:
    """A result that JSON cannot represent is null."""
    assert decode(code) is None


@pytest.mark.parametrize(
    ("code", "values"),
    [
        ("return {a: 5n, b: 2n ** 60n, t: 1}", {"a": 5, "b": "1152921504606846976", "t": 1}),
        ("return {a: NaN, b: -Infinity, c: 1e400, t: 1}", {"a": None, "b": None, "c": None}),
        ("return {a: '\\ud800', b: ['x', '\\udc00'], t: 1}", {"a": None, "b": ["x", None]}),
        ("const a = [1]; a.push(a); return {a, t: 1}", {"a": None}),
        ("return {get a() { throw Error('no') }, b: 1n, t: 1}", {"a": None, "b": 1}),
        ("return {a: {b: {c: 1n, d: NaN}}, t: 1}", {"a": {"b": {"c": 1, "d": None}}}),
        ("return {a: new Date(0), b: 1n, t: 1}", {"a": "1970-01-01T00:00:00.000Z", "b": 1}),
        ("let a = []; for (let i = 0; i < 3000; i++) a = [a]; return {a, t: 1}", {"a": None}),
    ],
)
def test_a_value_without_json_affects_no_other(code: str, values: dict[str, Any]) -> None:
    """A BigInt becomes a number or its digits; other such values become null."""
    assert decode(code) == {"t": 1, **values}


def test_an_integer_that_javascript_would_round_is_not_encoded() -> None:
    """An integer beyond 2^53 is rejected."""
    source = "function Encode(port, values) { return [values.a] }"
    with pytest.raises(CodecFailed, match="9007199254740993"):
        codec(source, "Encode").encode({"x": [2**53 + 1]}, PORT, AT)


def test_decoding_a_frame_again_returns_the_same() -> None:
    """Clock and random numbers depend on the frame only."""
    code = "return [Date.now(), new Date().getTime(), Math.random(), new Date(5).getTime()]"
    assert decode(code) == decode(code) == [AT, AT, 0.5, 5]


@pytest.mark.parametrize("source", codecs_of("written.js"))
def test_common_scripts_run(source: str) -> None:
    """Polyfills, prototypes, custom errors and undeclared variables work."""
    assert codec(source).decode(b"\x01", PORT, AT) == {"a": 1}


@pytest.mark.parametrize("line", codecs_of("buffers.js"))
def test_buffers_are_those_of_node(line: str) -> None:
    """`Buffer` returns the values of Node.js."""
    expression, _, value = line.rpartition(" // ")
    assert decode(f"return {expression}") == json.loads(value)


def test_a_console_keeps_lines_for_a_trial() -> None:
    """Console output is limited, reset by each call, and kept on demand."""
    source = """function Decode() {
      console.log("a", 1, {b: 2}, [3], null, undefined, 4n, new Error("five"));
      console.group("in"); console.warn("x".repeat(600)); console.groupEnd(); console.count();
      console.assert(false, "no"); console.assert(true, "yes"); console.debug("\\ud800");
      for (let n = 0; n < 200; n++) console.info(n);
      return 1;
    }"""
    loaded = codec(source)
    for _ in range(2):
        assert loaded.decode(b"", PORT, AT, logging=True) == 1
        assert loaded.log[0] == 'a 1 {"b":2} [3] null undefined 4n Error: five'
        assert loaded.log[1:6] == ["in", f"  {'x' * 498}", "default: 1", "no", "\ufffd"]
        assert (len(loaded.log), loaded.log[-1]) == (100, "…")
    assert loaded.decode(b"", PORT, AT) == 1
    assert loaded.log == []


def test_a_console_keeps_the_lines_of_a_call_that_fails() -> None:
    """A failed call keeps its console output."""
    loaded = codec("function Decode() { console.log('here'); throw new Error('odd') }")
    with pytest.raises(CodecFailed, match="odd"):
        loaded.decode(b"", PORT, AT, logging=True)
    assert loaded.log == ["here"]


def test_variables_are_empty_objects_of_each_call() -> None:
    """`input.variables` and the third argument are empty objects in each call."""
    step = CodecStep("codec.js", "decodeUplink", [CodecArgument("input")])
    source = "function decodeUplink(input) { return {a: input.variables, b: input.recvTime} }"
    loaded = LoadedCodec(Codec(scripts={"codec.js": source}, decoder=[step]))
    assert loaded.decode(b"", PORT, 0) == {"a": {}, "b": "1970-01-01T00:00:00.000Z"}


@pytest.mark.parametrize("value", ["Buffer.from([1, 2])", "new Uint8Array([1, 2])"])
def test_encoders_may_give_typed_arrays(value: str) -> None:
    """An encoder may return a typed array, also as `bytes`."""
    assert codec(f"function Encode() {{ return {value} }}", "Encode").encode({}, 1, AT) == [1, 2]
    source = f"function Encode() {{ return {{bytes: {value}}} }}"
    assert codec(source, "Encode").encode({}, 1, AT) == {"bytes": [1, 2]}


def test_dates_and_numbers_are_written_as_in_english() -> None:
    """Dates and numbers are formatted in English."""
    values = "day, new Date(NaN), 1234567.8917, -0.5, 100, new Date(0)"
    code = f"""const day = new Date(Date.UTC(2026, 7, 2, 13, 8, 5));
      return [{values}].map((value) => value.toLocaleString()).concat(day.toLocaleDateString())"""
    assert decode(code) == [
        *("8/2/2026, 1:08:05 PM", "Invalid Date", "1,234,567.892", "-0.5", "100"),
        *("1/1/1970, 12:00:00 AM", "8/2/2026"),
    ]


def test_a_long_answer_comes_whole() -> None:
    """Long text is returned complete."""
    assert decode("return 'x'.repeat(60000) + 'µ'") == "x" * 60000 + "µ"


def test_a_script_that_loads_modules_gets_a_clear_fault() -> None:
    """`require` does not exist, and the fault says so."""
    with pytest.raises(CodecFailed, match="cannot load other files"):
        decode("return require('fs')")


@pytest.mark.parametrize("source", ["function (", "var x = 1;", "throw new Error('at once')"])
def test_an_invalid_script_is_a_fault(source: str) -> None:
    """A syntax error, a missing entry point, and an error at start are faults."""
    with pytest.raises(CodecFailed):
        codec(source).decode(b"\x01", PORT, AT)


def test_functions_of_a_script_are_found() -> None:
    """Functions are found in all forms of declaration."""
    source = "function Decode() {} const Encode = () => []; var Encoder = 7;"
    names = ["Decode", "Decoder", "Encode", "Encoder"]
    assert ScriptInspector(source).find_functions(names) == ["Decode", "Encode"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("}); globalThis.x = 1; (function () {", "SyntaxError"),
        ("/* not ended", "SyntaxError"),
        ("function (", "SyntaxError"),
        ("return 1", "SyntaxError"),
        ("throw new Error('at once')", "at once"),
        ("for (;;) {}", "too long"),
        ("'x'.repeat(2 ** 29)", "memory|invalid string length"),
    ],
)
def test_a_script_is_a_program_by_itself(source: str, reason: str) -> None:
    """A script cannot break out of the text around it."""
    with pytest.raises(CodecFailed, match=reason):
        ScriptInspector(source).find_functions(["Decode"])
