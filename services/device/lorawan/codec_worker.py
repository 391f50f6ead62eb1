"""Worker process for the codecs of one tenant.

Contexts stay loaded and calls come in batches. The process is started as `python -I -c` with an
empty environment and confined before it reads input. A codec that was interrupted is loaded again
for the next call. After several interrupted calls in a row the rest of a batch is rejected.
"""

import re
import signal
import sys
from collections import OrderedDict
from time import process_time
from typing import Any

import msgspec

from libs.common.sandbox.confine import confine_process, end_with_parent, read_frame, write_frame
from services.device.lorawan.codec_calls import (
    BatchResult,
    CallOutcome,
    CodecCall,
    FunctionsRequest,
    WorkerRequest,
    WorkerResponse,
)
from services.device.lorawan.codec_context import (
    OUT_OF_MEMORY_FAULT,
    CodecInterrupted,
    LoadedCodec,
    ScriptInspector,
)
from services.device.lorawan.codec_source import ALL_BUILT_INS
from services.device.things.codec_model import Codec, CodecFailed

MAX_LOADED_CODECS = 8
"""Maximum number of loaded codecs."""
MAX_ADDED_MEMORY_BYTES = 192 * 1024 * 1024
"""Bytes that the process may use in addition to its initial memory."""
MAX_RESULT_LEVELS = 500
"""Recursion limit of the process, which limits the levels of a result; services handle more."""
KILL_SECONDS = 2.0
"""Processor time of a call in seconds after which the kernel kills the process.

QuickJS checks its own limit between operations, and cannot interrupt some long built-ins.
"""
MAX_INTEGER_BITS = 63
"""Maximum bits of an integer in a response, without its sign; larger integers become floats."""
MAX_INTERRUPTED_CALLS = 3
"""Interrupted calls in a row after which the rest of a batch is rejected."""


_FROZEN_OBJECT_ERROR = re.compile(
    "TypeError: .*(is read-only|not extensible|not configurable|not delete property|no setter for)"
)
"""Fault of a script that changes a built-in object which the analysis has missed."""

_decode_request = msgspec.msgpack.Decoder(WorkerRequest).decode
_encode_msgpack = msgspec.msgpack.Encoder().encode


def main() -> None:
    """Serve requests from standard input until it ends."""
    end_with_parent()
    sys.setrecursionlimit(MAX_RESULT_LEVELS)
    confine_process(MAX_ADDED_MEMORY_BYTES, allow_timer=True)
    loaded: OrderedDict[str, ReloadableCodec] = OrderedDict()
    while (request := read_frame(0)) is not None:
        write_frame(1, _encode_response(_handle_request(loaded, _decode_request(request))))


def _encode_response(answer: WorkerResponse) -> bytes:
    """Encode a response; integers beyond 64 bits become floats, as in JavaScript."""
    try:
        return _encode_msgpack(answer)
    except OverflowError:
        whole = answer or BatchResult([])
        outcomes = [
            CallOutcome(_large_integers_to_float(outcome.value), outcome.fault, outcome.log)
            for outcome in whole.outcomes
        ]
        return _encode_msgpack(BatchResult(outcomes, whole.seconds))


def _large_integers_to_float(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _large_integers_to_float(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_large_integers_to_float(item) for item in value]
    return float(value) if type(value) is int and value.bit_length() > MAX_INTEGER_BITS else value


class ReloadableCodec:
    """A codec and its context, which may have to be loaded again."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._context: LoadedCodec | None = None
        self._changeable: list[str] | None = None
        self._broken = 0

    def run_calls(
        self, calls: list[CodecCall], seconds: float, *, logging: bool = False
    ) -> list[CallOutcome]:
        """Return the outcomes of a batch that may take `seconds` of processor time."""
        self._broken, end = 0, process_time() + seconds
        try:
            return [
                self._run_call(call, logging=logging)
                if process_time() < end
                else CallOutcome(fault="takes too long")
                for call in calls
            ]
        finally:
            _set_kill_timer(0)

    def _run_call(self, call: CodecCall, *, logging: bool) -> CallOutcome:
        if self._broken >= MAX_INTERRUPTED_CALLS:
            return CallOutcome(fault="was ended several times in a row")
        _set_kill_timer(KILL_SECONDS)
        used, log = self._context is not None, list[str]()
        try:
            context = self._context = self._context or LoadedCodec(self._codec, self._changeable)
            try:
                run = getattr(context, call.kind)
                value = run(call.content, call.port, call.at, logging=logging)
            finally:
                log = context.log
                if context.spent:
                    self._context = None
        except CodecInterrupted as error:
            self._context = None
            if used and str(error) == OUT_OF_MEMORY_FAULT:  # promises of earlier calls may hold it
                return self._run_call(call, logging=logging)
            self._broken += 1
            return CallOutcome(fault=str(error), log=log)
        except CodecFailed as error:
            if self._changeable is None and _FROZEN_OBJECT_ERROR.match(str(error)):
                self._context, self._changeable = None, ALL_BUILT_INS
                return self._run_call(call, logging=logging)
            self._broken = 0
            return CallOutcome(fault=str(error), log=log)
        self._broken = 0
        return CallOutcome(value, log=log)


def _handle_request(
    loaded: OrderedDict[str, ReloadableCodec], request: WorkerRequest
) -> WorkerResponse:
    started = process_time()
    if isinstance(request, FunctionsRequest):
        return BatchResult([_find_functions(source, request.names) for source in request.scripts])
    if request.codec is not None:
        loaded[request.version] = ReloadableCodec(request.codec)
    warm_codec = loaded.get(request.version)
    if warm_codec is None:
        return None
    loaded.move_to_end(request.version)
    while len(loaded) > MAX_LOADED_CODECS:
        loaded.popitem(last=False)
    outcomes = warm_codec.run_calls(request.calls, request.seconds, logging=request.logging)
    return BatchResult(outcomes, process_time() - started)


def _set_kill_timer(seconds: float) -> None:
    """Kill this process after `seconds` of processor time; 0 disables it."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _find_functions(
    source: str, names: list[str], changeable: list[str] | None = None
) -> CallOutcome:
    _set_kill_timer(KILL_SECONDS)
    try:
        return CallOutcome(ScriptInspector(source, changeable).find_functions(names))
    except CodecFailed as error:
        if changeable is None and _FROZEN_OBJECT_ERROR.match(str(error)):
            return _find_functions(source, names, ALL_BUILT_INS)
        return CallOutcome(fault=str(error))
    finally:
        _set_kill_timer(0)
