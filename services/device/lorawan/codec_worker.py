"""A worker process for the codecs of one tenant: contexts that stay warm, calls in batches.

It begins with `python -I -c` and an empty environment and is confined before it reads anything.
A codec that is ended in the middle of a call is loaded anew for the next one; after some in a row
the rest of a batch is refused unread.
"""

import math
import re
import signal
import sys
from collections import OrderedDict
from time import process_time
from typing import Any, Literal

import msgspec

from libs.common.sandbox.confine import confine, end_with_parent, read_frame, write_frame
from services.device.lorawan.codec_context import NO_MEMORY, CodecBroken, LoadedCodec, ScriptReader
from services.device.lorawan.codec_source import EVERYTHING
from services.device.things.codec_model import Codec, CodecFailed

KEPT = 8
"""Codecs that stay loaded."""
MEMORY = 192 * 1024 * 1024
"""Bytes that the process may use beyond what it begins with."""
DEEPEST = 500
"""Levels of what a call gives; the service itself goes down further."""
STUCK = 2.0
"""Seconds of the processor after which a call ends the process: QuickJS looks at its own limit
between operations, and one of them may be long (`[].reverse` of what says it is)."""
LARGEST_BITS = 63
"""Of an integer, without its sign."""
MOST_BROKEN = 3
"""Calls in a row that are ended before the rest of a batch is refused."""


class Call(msgspec.Struct, frozen=True, array_like=True):
    """One payload to be decoded, or values to be encoded."""

    kind: Literal["decode", "encode"]
    content: Any
    """Bytes, or the values."""
    port: int
    at: int
    """When the frame came, ms."""


class Asked(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """Calls of one codec."""

    version: str
    calls: list[Call]
    codec: Codec | None = None
    """Sent along when the worker has said that it lacks it."""
    seconds: float = math.inf
    """Of the processor; what is not begun by then is refused unread."""
    logging: bool = False
    """Keep the lines that the codec writes to its console."""


class Read(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """Scripts that are imported."""

    scripts: list[str]
    names: list[str]
    """Of functions that are looked for in each."""


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What became of one call, or of one script: the names that are functions of it."""

    value: Any = None
    fault: str | None = None
    log: list[str] = []

    def given(self) -> Any:
        """The value; raise `CodecFailed` when there is none."""
        if self.fault is not None:
            raise CodecFailed(self.fault)
        return self.value


class Answered(msgspec.Struct, frozen=True, array_like=True):
    """The outcomes, and how many seconds of the processor they took."""

    outcomes: list[Outcome]
    seconds: float = 0.0


Answer = Answered | None
"""None when the codec is not there and has to be sent along."""

_FROZEN = re.compile(
    "TypeError: .*(is read-only|not extensible|not configurable|not delete property|no setter for)"
)
"""A fault of a script that changes a built-in object which its text does not show to be changed."""

_read = msgspec.msgpack.Decoder(Asked | Read).decode
_write = msgspec.msgpack.Encoder().encode


def main() -> None:
    """Serve requests from standard input until it ends."""
    end_with_parent()
    sys.setrecursionlimit(DEEPEST)
    confine(MEMORY, timer=True)
    loaded: OrderedDict[str, Loaded] = OrderedDict()
    while (request := read_frame(0)) is not None:
        write_frame(1, _written(_answer(loaded, _read(request))))


def _written(answer: Answer) -> bytes:
    """Return an answer as bytes; integers beyond 64 bits, which are JavaScript's, become floats."""
    try:
        return _write(answer)
    except OverflowError:
        whole = answer or Answered([])
        outcomes = [Outcome(_small(one.value), one.fault, one.log) for one in whole.outcomes]
        return _write(Answered(outcomes, whole.seconds))


def _small(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _small(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_small(item) for item in value]
    return float(value) if type(value) is int and value.bit_length() > LARGEST_BITS else value


class Loaded:
    """A codec, and its context while it has one."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._context: LoadedCodec | None = None
        self._changeable: list[str] | None = None
        self._broken = 0

    def outcomes(
        self, calls: list[Call], seconds: float, *, logging: bool = False
    ) -> list[Outcome]:
        """Return the outcomes of a batch that may take so many seconds."""
        self._broken, end = 0, process_time() + seconds
        try:
            return [
                self._outcome(call, logging=logging)
                if process_time() < end
                else Outcome(fault="takes too long")
                for call in calls
            ]
        finally:
            _limit(0)

    def _outcome(self, call: Call, *, logging: bool) -> Outcome:
        if self._broken >= MOST_BROKEN:
            return Outcome(fault="was ended several times in a row")
        _limit(STUCK)
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
        except CodecBroken as error:
            self._context = None
            if used and str(error) == NO_MEMORY:  # promises of calls before may hold it
                return self._outcome(call, logging=logging)
            self._broken += 1
            return Outcome(fault=str(error), log=log)
        except CodecFailed as error:
            if self._changeable is None and _FROZEN.match(str(error)):
                self._context, self._changeable = None, EVERYTHING
                return self._outcome(call, logging=logging)
            self._broken = 0
            return Outcome(fault=str(error), log=log)
        self._broken = 0
        return Outcome(value, log=log)


def _answer(loaded: OrderedDict[str, Loaded], asked: Asked | Read) -> Answer:
    started = process_time()
    if isinstance(asked, Read):
        return Answered([_functions(source, asked.names) for source in asked.scripts])
    if asked.codec is not None:
        loaded[asked.version] = Loaded(asked.codec)
    found = loaded.get(asked.version)
    if found is None:
        return None
    loaded.move_to_end(asked.version)
    while len(loaded) > KEPT:
        loaded.popitem(last=False)
    outcomes = found.outcomes(asked.calls, asked.seconds, logging=asked.logging)
    return Answered(outcomes, process_time() - started)


def _limit(seconds: float) -> None:
    """End this process after so many seconds of the processor; 0 is never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _functions(source: str, names: list[str], changeable: list[str] | None = None) -> Outcome:
    _limit(STUCK)
    try:
        return Outcome(ScriptReader(source, changeable).functions(names))
    except CodecFailed as error:
        if changeable is None and _FROZEN.match(str(error)):
            return _functions(source, names, EVERYTHING)
        return Outcome(fault=str(error))
    finally:
        _limit(0)
