"""A loaded codec: its scripts are compiled once, and each call has fresh variables."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import quickjs

from services.device.lorawan.codec_source import AnalysedScript, analyse_script
from services.device.things.codec_model import Codec, CodecFailed

ENGINE_SCRIPT = Path(__file__).with_name("engine.js").read_text()
BUFFER_SCRIPT = Path(__file__).with_name("buffer.js").read_text()
MAX_CONTEXT_BYTES = 16 * 1024 * 1024
"""Maximum bytes of memory of a JavaScript context."""
MAX_STACK_BYTES = 256 * 1024
"""Maximum bytes of the stack of a JavaScript context."""
MAX_CALL_SECONDS = 0.1
"""Maximum processor time of a call, in seconds."""
MAX_LOADING_SECONDS = 1.0
"""Maximum processor time of loading the scripts, in seconds."""
OUT_OF_MEMORY_FAULT = "needs too much memory"
"""Fault of a script that exceeds `MAX_CONTEXT_BYTES`."""


class CodecInterrupted(CodecFailed):
    """A call was interrupted or loading failed, so the codec must be loaded again."""


_VALID_SYNTAX_MARKER = "the syntax of this script is valid"
"""Thrown before the first statement of a script, and only if QuickJS can parse the script."""
_REQUIRE_ERROR_ENDING = "require is not defined"
_OUT_OF_MEMORY_TEXTS = ("null", "InternalError")
"""Errors of QuickJS when it has no memory for an error message."""


class _EngineAnswer(msgspec.Struct):
    value: Any = None
    fault: str | None = None
    broken: bool = False
    log: list[str] = []
    spent: bool = False


_decode_engine_answer = msgspec.json.Decoder(_EngineAnswer).decode
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Engine:
    """A context whose built-in objects are frozen, or restored after each call.

    Only one thread may use it.
    """

    def __init__(self, scripts: Iterable[AnalysedScript], changeable: Sequence[str] | None) -> None:
        """Create a context in which scripts can change the built-in objects of `changeable`.

        For None, scripts can change the built-in objects that the analysis found in their text.
        """
        self._context = _create_context()
        if any(script.buffer for script in scripts):
            self._context.eval(BUFFER_SCRIPT)
        self._context.eval(ENGINE_SCRIPT)
        seal, self._load, self._decode, self._encode, self._functions = (
            self._context.eval(f"engine[{index}]") for index in range(5)
        )
        self._context.eval("delete globalThis.engine; undefined")
        if changeable is None:
            changeable = sorted({path for script in scripts for path in script.changeable})
        self._call(seal, msgspec.json.encode(changeable).decode())

    def _call(self, function: Any, *given: Any) -> Any:
        try:
            return function(*given)
        except quickjs.JSException as error:
            raise CodecInterrupted(_explain_error(str(error).partition("\n")[0])) from error
        except MemoryError as error:
            raise CodecInterrupted(OUT_OF_MEMORY_FAULT) from error


class LoadedCodec(_Engine):
    """A codec whose functions can be called."""

    def __init__(self, codec: Codec, changeable: Sequence[str] | None = None) -> None:
        """Load the scripts of a codec; raise `CodecFailed` when they cannot be parsed.

        `changeable` are paths of built-in objects (`Array.prototype`) that scripts can change, and
        `ALL_BUILT_INS` is all of them. By default these are the objects that the analysis found.
        """
        scripts = {name: analyse_script(source) for name, source in codec.scripts.items()}
        super().__init__(scripts.values(), changeable)
        self.spent = False
        """The last call left changes that cannot be undone: the next one needs a new context."""
        self.log: list[str] = []
        """Lines that the last call wrote to its console, if `logging` was set."""
        self._context.set_time_limit(MAX_LOADING_SECONDS)
        steps = {"scripts": scripts, "decoder": codec.decoder, "encoder": codec.encoder}
        self._call(self._load, msgspec.json.encode(steps).decode())
        self._context.set_time_limit(MAX_CALL_SECONDS)

    def decode(self, payload: bytes, port: int, at: int, *, logging: bool = False) -> Any:
        """Decode a payload that was received at `at` (ms) and return the result.

        Raises `CodecFailed` with the thrown error, `CodecInterrupted` when the call was
        interrupted.
        """
        return self._call_codec(self._decode, port, payload.hex(), float(at), logging)

    def encode(self, values: Any, port: int, at: int, *, logging: bool = False) -> Any:
        """Encode values and return the result; raise as `decode` does.

        Also raises `CodecFailed` for an integer that a JavaScript number cannot represent exactly.
        """
        if (integer := _find_inexact_integer(values)) is not None:
            raise CodecFailed(f"cannot be given {integer}: JavaScript keeps only 2^53 exactly")
        content = msgspec.json.encode(values).decode()
        return self._call_codec(self._encode, port, content, float(at), logging)

    def _call_codec(self, function: Any, *given: Any) -> Any:
        self.log = []
        answer = _parse_engine_answer(self._call(function, *given))
        self.log, self.spent = answer.log, answer.spent
        if answer.fault is not None:
            raise (CodecInterrupted if answer.broken else CodecFailed)(_explain_error(answer.fault))
        return answer.value


class ScriptInspector(_Engine):
    """Finds the functions of a script that is being imported."""

    def __init__(self, source: str, changeable: Sequence[str] | None = None) -> None:
        """Parse a script; raise `CodecFailed` if it is not a complete program."""
        self._script = analyse_script(source)
        _check_complete(self._script.source)
        super().__init__([self._script], changeable)

    def find_functions(self, names: Sequence[str]) -> list[str]:
        """Return which of `names` are functions of the script.

        Raises `CodecFailed` for a script that throws while it is evaluated.
        """
        self._context.set_time_limit(MAX_CALL_SECONDS)
        wanted_names = msgspec.json.encode(names).decode()
        script = msgspec.json.encode(self._script).decode()
        return msgspec.json.decode(
            self._call(self._functions, script, wanted_names), type=list[str]
        )


def _check_complete(source: str) -> None:
    """Raise `CodecFailed` unless `source` is a complete program.

    engine.js adds text around the source. A throwaway context parses the whole text and stops at
    the first statement.
    """
    context = _create_context()
    context.set_time_limit(MAX_LOADING_SECONDS)
    try:
        evaluate = context.eval("(source) => (0, eval)(JSON.parse(source))")
        evaluate(msgspec.json.encode(f"throw '{_VALID_SYNTAX_MARKER}';\n{source}").decode())
    except quickjs.JSException as error:
        reason = str(error).partition("\n")[0]
        if reason != _VALID_SYNTAX_MARKER:
            raise CodecFailed(_explain_error(reason)) from error
    except MemoryError as error:
        raise CodecFailed(OUT_OF_MEMORY_FAULT) from error


def _create_context() -> Any:
    context = quickjs.Context()
    context.set_memory_limit(MAX_CONTEXT_BYTES)
    context.set_max_stack_size(MAX_STACK_BYTES)
    return context


def _find_inexact_integer(value: Any) -> int | None:
    """Return an integer of `value` that JavaScript cannot represent, or None."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return next(
            (found for item in value if (found := _find_inexact_integer(item)) is not None), None
        )
    return value if isinstance(value, int) and int(float(value)) != value else None


def _parse_engine_answer(text: str) -> _EngineAnswer:
    try:
        return _decode_engine_answer(text)
    except RecursionError as error:
        raise CodecFailed("returns an object with too many levels") from error
    except msgspec.DecodeError:  # half a surrogate pair
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise CodecInterrupted("returns no JSON") from error
        raw["value"] = _replace_surrogates(raw.get("value"))
        return msgspec.convert(raw, _EngineAnswer)


def _replace_surrogates(value: Any) -> Any:
    """Return `value` with null for invalid Unicode text, which the TSL then rejects."""
    if isinstance(value, str):
        return None if _SURROGATE.search(value) else value
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {
            _SURROGATE.sub("\ufffd", key): _replace_surrogates(item) for key, item in value.items()
        }
    return value


def _explain_error(text: str) -> str:
    """Return an error of QuickJS in our words."""
    if "interrupted" in text:
        return "takes too long"
    if "out of memory" in text or text in _OUT_OF_MEMORY_TEXTS:
        return OUT_OF_MEMORY_FAULT
    return (
        f"{text}; a codec cannot load other files" if text.endswith(_REQUIRE_ERROR_ENDING) else text
    )
