"""A worker process for JavaScript and CEL: each run has its own forked process.

The worker never runs code of users itself. It prepares an interpreter, forks a child, sends it the
next request and reads the response. Then it ends the child, responds and forks the next child. So a
run cannot affect later runs, and never waits for a fork. It starts with `python -I -c` and an empty
environment (`scripts.py`).
"""

import json
import os
import select
import signal
import time
from pathlib import Path
from typing import NamedTuple

import quickjs

from libs.common.sandbox.confine import (
    FRAME_HEADER,
    confine_process,
    end_with_parent,
    lower_priority,
    read_frame,
    use_idle_time,
    write_frame,
)
from services.workflow.expressions.cel import CelFailed, evaluate, load_extension
from services.workflow.sandbox.limits import CONDITION, GRACE, SECONDS

_PRELUDE = Path(__file__).with_name("prelude.js")
_WARM_UP = b'["return {a: b * 1.5, c: b > 30}", ["b"], [20]]'
USUAL_SECONDS = 0.05
"""Seconds in which most code finishes."""
_CHUNK = 65_536


class Interpreter:
    """A prepared interpreter: created before the fork, used once after it."""

    def __init__(self, memory: int, output: int) -> None:
        self._context = quickjs.Context()
        self._output = output
        self._context.set_memory_limit(memory)
        self._context.eval(_PRELUDE.read_text())
        self._begin = self._context.get("begin")
        self._outcome = self._context.get("outcome")
        self._context.eval("delete globalThis.begin; delete globalThis.outcome; undefined")

    def warm(self) -> None:
        """Run a small script after the fork, so that user code finds copied memory pages.

        Copying the pages takes longer than most runs.
        """
        self.answer(_WARM_UP, 1.0)

    def answer(self, request: bytes, seconds: float) -> bytes:
        """Return `R` and the result as JSON, or `E` and the reason.

        This time limit is for the processor. The caller also limits the elapsed time, which ends
        functions that QuickJS cannot interrupt.
        """
        until = time.monotonic() + seconds
        self._context.set_time_limit(seconds)
        try:
            self._begin(request.decode())
            while (outcome := self._outcome()) is None:
                if time.monotonic() > until:
                    return _failure("took too long")
                if not self._context.execute_pending_job():
                    return _failure("the returned promise never resolves")
        except quickjs.JSException as error:
            return _reason(error)
        except MemoryError:
            return _failure("needs too much memory")
        except UnicodeDecodeError:  # the error has half of a surrogate pair
            return _failure("raised text that is not Unicode")
        answer = str(outcome).encode(errors="replace")
        return answer if len(answer) <= self._output else _failure("the result is too large")


def _reason(error: Exception) -> bytes:
    """Return the reason of a QuickJS error; the prelude reports errors of user code."""
    text = str(error).partition("\n")[0]
    if "interrupted" in text:
        return _failure("took too long")
    if "out of memory" in text or text == "null":
        return _failure("needs too much memory")
    return _failure(text)


def _failure(text: str) -> bytes:
    return b"E" + text.encode(errors="replace")


class RunProcess(NamedTuple):
    """A process for one run."""

    pid: int
    requests: int
    answers: int


def main(memory: int, output: int) -> None:
    """Handle requests from standard input until it is closed."""
    end_with_parent()
    lower_priority()
    load_extension()  # before a child loses access to files
    interpreter = Interpreter(memory, output)
    while True:
        child = _fork(interpreter, memory)
        request = read_frame(0)
        if request is None:
            return
        write_frame(1, _answer(child, request, output))
        _end(child)


def _fork(interpreter: Interpreter, memory: int) -> RunProcess:
    their_requests, requests = os.pipe()
    answers, their_answers = os.pipe()
    pid = os.fork()
    if pid:
        os.close(their_requests)
        os.close(their_answers)
        return RunProcess(pid, requests, answers)
    try:
        end_with_parent()
        for descriptor in (0, 1, 2, requests, answers):
            os.close(descriptor)
        confine_process(2 * memory)
        interpreter.warm()
        _run(interpreter, their_requests, their_answers)
    finally:
        os._exit(0)


def _run(interpreter: Interpreter, requests: int, answers: int) -> None:
    """Handle one request in a child."""
    request = read_frame(requests)
    if request is not None:
        (seconds,) = SECONDS.unpack_from(request)
        kind, content = request[SECONDS.size :][:1], request[SECONDS.size + 1 :]
        done = (
            _evaluate_condition(content)
            if kind == CONDITION
            else interpreter.answer(content, seconds)
        )
        write_frame(answers, done)


def _answer(child: RunProcess, request: bytes, output: int) -> bytes:
    """Return the response of a child, or how it ended."""
    (seconds,) = SECONDS.unpack_from(request)
    try:
        write_frame(child.requests, request)
        answer = _read_answer(child, time.monotonic() + seconds + GRACE, output)
    except BrokenPipeError:
        answer = None
    return answer if answer is not None else b"E" + _describe_end(child.pid)


def _read_answer(child: RunProcess, until: float, maximum: int) -> bytes | None:
    """Read the frame of a child, which user code may have written.

    Returns None if the child ended first.
    """
    content = b""
    while len(content) < FRAME_HEADER.size or len(content) < _frame_size(content):
        if not _wait_readable(child, until):
            return b"Etook too long"
        more = os.read(child.answers, _CHUNK)
        if not more:
            return None
        content += more
        if len(content) >= FRAME_HEADER.size and _frame_size(content) > FRAME_HEADER.size + maximum:
            return _failure("the result is too large")
    return content[FRAME_HEADER.size : _frame_size(content)]


def _wait_readable(child: RunProcess, until: float) -> bool:
    """Wait for a child's answer; return False if none has arrived at `until`.

    After `USUAL_SECONDS` the child gets only idle processor time.
    """
    for seconds in (USUAL_SECONDS, max(0.0, until - time.monotonic())):
        if select.select([child.answers], [], [], seconds)[0]:
            return True
        use_idle_time(child.pid)
    return False


def _frame_size(content: bytes) -> int:
    (size,) = FRAME_HEADER.unpack_from(content)
    return FRAME_HEADER.size + int(size)


def _describe_end(pid: int) -> bytes:
    """Return why a child closed its pipe; `_end` collects the process."""
    exit_info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if exit_info is None or exit_info.si_code == os.CLD_EXITED:
        return b"ended without a result"
    if exit_info.si_status == signal.SIGSYS:
        return b"was ended, because it tried to leave the sandbox"
    return f"was ended by {signal.Signals(exit_info.si_status).name}".encode()


def _end(child: RunProcess) -> None:
    os.close(child.requests)
    os.close(child.answers)
    os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)


def _evaluate_condition(request: bytes) -> bytes:
    """Return `R` and the value of a CEL condition as JSON, or `E` and the reason."""
    text, variables = json.loads(request)
    try:
        return b"R" + json.dumps(evaluate(text, variables), default=str).encode()
    except CelFailed as error:
        return b"E" + str(error).encode(errors="replace")
    except (MemoryError, RecursionError):
        return b"Eneeds too much memory"
