"""A codec that is loaded: its scripts are read once, and each call begins with fresh variables."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import quickjs

from services.device.codecs.model import Codec, CodecFailed

ENGINE = Path(__file__).with_name("engine.js").read_text()
MEMORY = 16 * 1024 * 1024
"""Bytes that a context may use."""
STACK = 256 * 1024
"""Bytes of its stack."""
SECONDS = 0.1
"""Seconds of the processor that a call may take."""
LARGEST_ANSWER = 64 * 1024
"""Characters of the JSON that a call gives."""
LOADING = 1.0
"""The same of loading the scripts."""
NO_MEMORY = "needs too much memory"
"""The fault of what wants more than `MEMORY`."""


class CodecBroken(CodecFailed):
    """It has to be loaded anew: it was ended in the middle of a call."""


_WHOLE = "this script is whole"
_WORDLESS = ("null", "InternalError")
"""What an end for want of memory is when there is none for words either."""


class _Told(msgspec.Struct):
    value: Any = None
    fault: str | None = None
    broken: bool = False


_read = msgspec.json.Decoder(_Told).decode
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Engine:
    """A context in which all that calls share is frozen. Not for two threads."""

    def __init__(self) -> None:
        self._context = _context()
        self._context.eval(ENGINE)
        self._load, self._decode, self._encode, self._functions = (
            self._context.eval(f"engine[{one}]") for one in range(4)
        )
        seal = self._context.get("sealed")
        self._context.eval("delete globalThis.engine; delete globalThis.sealed; undefined")
        seal()

    def _call(self, function: Any, *given: Any) -> Any:
        try:
            return function(*given)
        except quickjs.JSException as error:
            raise CodecBroken(_said(str(error).partition("\n")[0])) from error
        except MemoryError as error:
            raise CodecBroken(NO_MEMORY) from error


class LoadedCodec(_Engine):
    """Calls a codec's functions."""

    def __init__(self, codec: Codec) -> None:
        """Raise `CodecFailed` when the scripts cannot be read."""
        super().__init__()
        self._context.set_time_limit(LOADING)
        self._call(self._load, msgspec.json.encode(codec).decode())
        self._context.set_time_limit(SECONDS)

    def decode(self, payload: bytes, port: int, at: int) -> Any:
        """What the decoder makes of a payload that came at `at` (ms).

        Raises `CodecFailed` with what it threw, `CodecBroken` when it was ended.
        """
        return _value(self._call(self._decode, port, payload.hex(), float(at)))

    def encode(self, values: Any, port: int, at: int) -> Any:
        """What the encoder makes of values; raises the same, also for an integer beyond 2^53."""
        if (integer := _inexact(values)) is not None:
            raise CodecFailed(f"cannot be given {integer}: JavaScript keeps only 2^53 exactly")
        return _value(
            self._call(self._encode, port, msgspec.json.encode(values).decode(), float(at))
        )


class ScriptReader(_Engine):
    """Reads one script as it is imported."""

    def functions(self, source: str, names: Sequence[str]) -> list[str]:
        """Which of `names` are functions of a script.

        Raises `CodecFailed` for one that is no whole program or ends as it begins.
        """
        _check_whole(source)
        self._context.set_time_limit(SECONDS)
        wanted = msgspec.json.encode(names).decode()
        found: list[str] = msgspec.json.decode(self._call(self._functions, source, wanted))
        return found


def _check_whole(source: str) -> None:
    """Raise `CodecFailed` for what is no program by itself: engine.js puts text around it.

    A throwaway context reads all of it and runs nothing, for it ends at its first statement.
    """
    context = _context()
    context.set_time_limit(LOADING)
    try:
        context.eval(f"throw '{_WHOLE}';\n{source}")
    except quickjs.JSException as error:
        reason = str(error).partition("\n")[0]
        if reason != _WHOLE:
            raise CodecFailed(_said(reason)) from error
    except MemoryError as error:
        raise CodecFailed(NO_MEMORY) from error


def _context() -> Any:
    context = quickjs.Context()
    context.set_memory_limit(MEMORY)
    context.set_max_stack_size(STACK)
    return context


def _inexact(value: Any) -> int | None:
    """Return an integer of `value` that a number of JavaScript cannot hold."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return next((found for item in value if (found := _inexact(item)) is not None), None)
    return value if isinstance(value, int) and int(float(value)) != value else None


def _value(answer: str) -> Any:
    if len(answer) > LARGEST_ANSWER:
        raise CodecFailed(f"gives more than {LARGEST_ANSWER} characters")
    try:
        told = _read(answer)
    except RecursionError as error:
        raise CodecFailed("gives what is too deep") from error
    except msgspec.DecodeError:  # half a surrogate pair
        told = _read_lossy(answer)
    if told.fault is not None:
        raise (CodecBroken if told.broken else CodecFailed)(_said(told.fault))
    return told.value


def _read_lossy(answer: str) -> _Told:
    raw = json.loads(answer)
    if fault := raw.pop("fault", None):
        raw["fault"] = _SURROGATE.sub("\ufffd", fault)
        return msgspec.convert(raw, _Told)
    return _Told(_without_surrogates(raw.get("value")))


def _without_surrogates(value: Any) -> Any:
    """Return `value` with null for text that is no Unicode, which the TSL then refuses."""
    if isinstance(value, str):
        return None if _SURROGATE.search(value) else value
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {
            _SURROGATE.sub("\ufffd", key): _without_surrogates(item) for key, item in value.items()
        }
    return value


def _said(text: str) -> str:
    """What QuickJS says of an end, in our words."""
    if "interrupted" in text:
        return "takes too long"
    return NO_MEMORY if "out of memory" in text or text in _WORDLESS else text
