"""A worker process for JavaScript and CEL: each run has a process of its own, forked beforehand.

The worker itself never runs people's code. It holds an interpreter that is ready, forks a
child from it, hands the next request to the child, takes its answer and sees it end; then it
answers and forks the next one. What one run does to its process dies with it, and a run never
waits for a fork. It begins with `python -I -c` and an empty environment (`scripts.py`).
"""

import json
import os
import select
import signal
import struct
import time
from pathlib import Path
from typing import NamedTuple

import quickjs

from libs.common.sandbox.confine import (
    HEADER,
    confine,
    end_with_parent,
    lower_priority,
    read_frame,
    use_idle_time,
    write_frame,
)
from services.workflow.expressions.cel import CelFailed, evaluate

_PRELUDE = Path(__file__).with_name("prelude.js")
_NOTHING_MUCH = b'["return {a: b * 1.5, c: b > 30}", ["b"], [20]]'
SECONDS = struct.Struct(">d")
"""What stands before a request: how long it may take."""
GRACE = 0.25
"""Seconds on the clock beyond those of the processor."""
SOON = 0.05
"""Seconds in which most code has answered."""
SCRIPT, CONDITION = b"J", b"C"
"""What a request begins with: JavaScript, or a condition in CEL."""
_CHUNK = 65_536


class Quick:
    """An interpreter that is ready; made before the fork, used once after it."""

    def __init__(self, memory: int, output: int) -> None:
        self._context = quickjs.Context()
        self._output = output
        self._context.set_memory_limit(memory)
        self._context.eval(_PRELUDE.read_text())
        self._begin = self._context.get("begin")
        self._outcome = self._context.get("outcome")
        self._context.eval("delete globalThis.begin; delete globalThis.outcome; undefined")

    def warm(self) -> None:
        """Answer a request of ours in a process just forked, so that people's code finds its own
        copies of the pages that a run writes to: they cost more than most runs."""
        self.answer(_NOTHING_MUCH, 1.0)

    def answer(self, request: bytes, seconds: float) -> bytes:
        """`R` and the result as JSON, or `E` and the reason.

        The time limit is that of the processor; the caller has set one on the clock, which
        also ends what QuickJS does not interrupt.
        """
        until = time.monotonic() + seconds
        self._context.set_time_limit(seconds)
        try:
            self._begin(request.decode())
            while (found := self._outcome()) is None:
                if time.monotonic() > until:
                    return _failure("took too long")
                if not self._context.execute_pending_job():
                    return _failure("the promise that it returned is never fulfilled")
        except quickjs.JSException as error:
            return _reason(error)
        except MemoryError:
            return _failure("needs too much memory")
        except UnicodeDecodeError:  # what it threw has half a surrogate pair
            return _failure("raised text that is not Unicode")
        answer = str(found).encode(errors="replace")
        return answer if len(answer) <= self._output else _failure("its result is too large")


def _reason(error: Exception) -> bytes:
    """What QuickJS itself says; the code's own errors are told by the prelude."""
    text = str(error).partition("\n")[0]
    if "interrupted" in text:
        return _failure("took too long")
    if "out of memory" in text or text == "null":
        return _failure("needs too much memory")
    return _failure(text)


def _failure(text: str) -> bytes:
    return b"E" + text.encode(errors="replace")


class Child(NamedTuple):
    """A process for one run."""

    pid: int
    requests: int
    answers: int


def main(memory: int, output: int) -> None:
    """Serve requests from standard input until it ends."""
    end_with_parent()
    lower_priority()
    quick = Quick(memory, output)
    while True:
        child = _fork(quick, memory)
        request = read_frame(0)
        if request is None:
            return
        write_frame(1, _answer(child, request, output))
        _end(child)


def _fork(quick: Quick, memory: int) -> Child:
    their_requests, requests = os.pipe()
    answers, their_answers = os.pipe()
    pid = os.fork()
    if pid:
        os.close(their_requests)
        os.close(their_answers)
        return Child(pid, requests, answers)
    try:
        end_with_parent()
        for one in (0, 1, 2, requests, answers):
            os.close(one)
        confine(2 * memory)
        quick.warm()
        _run(quick, their_requests, their_answers)
    finally:
        os._exit(0)


def _run(quick: Quick, requests: int, answers: int) -> None:
    """The life of a child."""
    request = read_frame(requests)
    if request is not None:
        (seconds,) = SECONDS.unpack_from(request)
        kind, content = request[SECONDS.size :][:1], request[SECONDS.size + 1 :]
        done = _condition(content) if kind == CONDITION else quick.answer(content, seconds)
        write_frame(answers, done)


def _answer(child: Child, request: bytes, output: int) -> bytes:
    """What a child answers to a request, or how it ended."""
    (seconds,) = SECONDS.unpack_from(request)
    try:
        write_frame(child.requests, request)
        answer = _frame_of(child, time.monotonic() + seconds + GRACE, output)
    except BrokenPipeError:
        answer = None
    return answer if answer is not None else b"E" + _how_it_ended(child.pid)


def _frame_of(child: Child, until: float, most: int) -> bytes | None:
    """The frame that a child writes; None when it ended first. People's code may write it."""
    content = b""
    while len(content) < HEADER.size or len(content) < _size_of(content):
        if not _said_something(child, until):
            return b"Etook too long"
        more = os.read(child.answers, _CHUNK)
        if not more:
            return None
        content += more
        if len(content) >= HEADER.size and _size_of(content) > HEADER.size + most:
            return b"Eits result is too large"
    return content[HEADER.size : _size_of(content)]


def _said_something(child: Child, until: float) -> bool:
    """Wait for a child; one that computes for long gets only what nobody else wants."""
    for patience in (SOON, max(0.0, until - time.monotonic())):
        if select.select([child.answers], [], [], patience)[0]:
            return True
        use_idle_time(child.pid)
    return False


def _size_of(content: bytes) -> int:
    (size,) = HEADER.unpack_from(content)
    return HEADER.size + int(size)


def _how_it_ended(pid: int) -> bytes:
    """Why a child closed its pipe without an answer; it is left for `_end` to collect."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if found is None or found.si_code == os.CLD_EXITED:
        return b"ended without a result"
    if found.si_status == signal.SIGSYS:
        return b"was ended: it tried to leave its sandbox"
    return f"was ended by {signal.Signals(found.si_status).name}".encode()


def _end(child: Child) -> None:
    os.close(child.requests)
    os.close(child.answers)
    os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)


def _condition(request: bytes) -> bytes:
    """A condition in CEL: `R` and its value as JSON, or `E` and the reason."""
    text, variables = json.loads(request)
    try:
        return b"R" + json.dumps(evaluate(text, variables), default=str).encode()
    except CelFailed as error:
        return b"E" + str(error).encode(errors="replace")
    except (MemoryError, RecursionError):
        return b"Eneeds too much memory"
