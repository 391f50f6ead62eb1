"""What code of people gives, and how it is told what is wrong with it."""

import pytest

from services.workflow.errors import NodeFailed
from services.workflow.runs.model import FlowOwner
from services.workflow.sandbox.limits import CodeLimits
from services.workflow.sandbox.runner import Sandbox

OWNER = FlowOwner("t", 1)

VALUES = {
    "text": "Grüße \u2028 \U0001f600 \\ \"'",
    "whole": 2**53 - 1,
    "part": 0.1,
    "yes": True,
    "nothing": None,
    "list": [1, [2, {"three": []}]],
    "map": {"__proto__": 1, "constructor": 2, "": 3},
}


@pytest.mark.parametrize(
    ("language", "code", "value"),
    [
        ("js", "return a + b", 5),
        ("javascript", "const sum = (x, y) => x + y; return sum(a, b)", 5),
        ("js", "return {sum: a + b, none: undefined, odd: NaN}", {"sum": 5, "odd": None}),
        ("js", "a + b", None),
        ("js", "return (async () => (await a) + b)()", 5),
        ("js", "// a comment at the end\nreturn a // and one here", 2),
        ("js", "return '" + "x" * 100_000 + "' + a", "x" * 100_000 + "2"),
        ("python", "a + b", 5),
        ("python", "c = a + b\nreturn c", 5),
        ("python", "def main():\n  return {'s': a + b, 'two': (a, b)}\n", {"s": 5, "two": [2, 3]}),
        ("python", "def main():\n  return a\nmain()", 2),
        ("python", "def  main ( ) :\n  return a", 2),
        ("js", "return {['k' + '🔥'.slice(1)]: '🔥'.slice(0, 1)}", {"k\ufffd": "\ufffd"}),
        ("js", "return '🔥' + a", "🔥2"),
        ("js", "console.log('a', a); console.error(b); return a", 2),
        ("python", "print('a', a)\nreturn a", 2),
        ("python", "import json\njson.loads('[1]')", [1]),
        ("python", "x = 1", None),
    ],
)  # fmt: skip
async def test_the_result_of_code(sandbox, language, code, value):
    """`return` in JavaScript; `main`, `return` or the last line in Python; variables by name."""
    assert await sandbox.run(OWNER, language, code, {"a": 2, "b": 3}, 1) == value


@pytest.mark.parametrize(("language", "code"), [("js", "return given"), ("python", "given")])
async def test_json_values_go_in_and_out_as_they_are(sandbox, language, code):
    """Text of all kinds, numbers, booleans, nothing, lists and maps."""
    assert await sandbox.run(OWNER, language, code, {"given": VALUES}, 1) == VALUES


@pytest.mark.parametrize(
    ("language", "code", "reason"),
    [
        ("js", "return missing", "ReferenceError: missing is not defined"),
        ("js", "const x = ;", "SyntaxError"),
        ("js", "throw new TypeError('no')", "TypeError: no"),
        ("js", "throw 'plain'", "raised plain"),
        ("js", "throw '\\ud800'", "raised text that is not Unicode"),
        ("js", "return () => 1", "must not be a function"),
        ("js", "const o = {}; o.o = o; return o", "circular"),
        ("js", "return Promise.reject(new Error('late'))", "Error: late"),
        ("python", "missing", "name 'missing' is not defined (line 1)"),
        ("python", "x = 1\n1 / 0", "ZeroDivisionError: division by zero (line 2)"),
        ("python", "def (", "SyntaxError"),
        ("python", "class A: pass\nA()", "must be text, a number"),
        ("python", "{1: 2}", "key that is not text"),
        ("python", "float('inf')", "not finite"),
        ("python", "2 ** 70", "more than 64 bits"),
        ("python", "while True: print('x' * 1000)", "prints too much"),
        ("python", "'x' * 10**9", "needs too much memory"),
        ("groovy", "1", "groovy is not supported; use js or python"),
        ("mvel", "1", "mvel is not supported"),
        ("cobol", "1", "must be js or python. Got cobol"),
    ],
)
async def test_the_error_of_code(sandbox, language, code, reason):
    """It is the error of the language, or the reason why a result is invalid."""
    with pytest.raises(NodeFailed) as failed:
        await sandbox.run(OWNER, language, code, {}, 1)
    assert reason in str(failed.value)


@pytest.mark.parametrize(
    ("language", "code", "reason"),
    [
        ("js", "while (true) {}", None),
        ("javascript", "throw new SyntaxError('raised')", None),
        ("js", "return missing", None),
        ("js", "const x = ;", "SyntaxError"),
        ("js", "let a = 1", "SyntaxError"),
        ("python", "while True: pass", None),
        ("python", "raise ValueError('SyntaxError')", None),
        ("python", "def main():\n  return missing", None),
        ("python", "return a", None),
        ("python", "", None),
        ("python", "x = 1\ndef (:", "(line 2)"),
        ("python", "def main():\n  return (1", "SyntaxError"),
    ],
)
async def test_syntax_is_judged_and_nothing_runs(sandbox, language, code, reason):
    """A syntax error has its line; runtime errors are not found."""
    fault = await sandbox.find_syntax_error(OWNER, language, code, ["a", "b"])
    assert fault is None if reason is None else reason in (fault or "")


@pytest.mark.parametrize(
    ("language", "code"), [("js", "return big.length"), ("python", "len(big)")]
)
async def test_too_much_is_not_handed_over(sandbox, language, code):
    """Arguments and code of more than a MiB are refused before they cost anything."""
    with pytest.raises(NodeFailed, match="at most 1048576 bytes"):
        await sandbox.run(OWNER, language, code, {"big": "x" * CodeLimits().input_bytes}, 1)


async def test_one_run_leaves_nothing_to_the_next():
    """Each has its own globals, also in the one process that there is."""
    async with Sandbox(1) as sandbox:
        await sandbox.run(OWNER, "js", "globalThis.kept = 1; Array.prototype.kept = 2", {}, 1)
        await sandbox.run(OWNER, "python", "kept = 1", {}, 1)
        assert await sandbox.run(OWNER, "js", "return [typeof kept, typeof [].kept]", {}, 1) == [
            "undefined",
            "undefined",
        ]
        with pytest.raises(NodeFailed, match="kept"):
            await sandbox.run(OWNER, "python", "kept", {}, 1)
