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
from services.workflow.expressions.cel import CelFailed, evaluate_cel, import_cel_extension
from services.workflow.sandbox.limits import CEL_REQUEST, ELAPSED_GRACE_SECONDS, TIME_LIMIT_HEADER

_PRELUDE = Path(__file__).with_name("prelude.js")
_WARM_UP_REQUEST = b'["return {a: b * 1.5, c: b > 30}", ["b"], [20]]'
USUAL_SECONDS = 0.05
"""Seconds in which most code finishes."""
_READ_BYTES = 65_536


class Interpreter:
    """A JavaScript interpreter, prepared before the fork for one request after it."""

    def __init__(self, memory_bytes: int, output_bytes: int) -> None:
        self._context = quickjs.Context()
        self._output_bytes = output_bytes
        self._context.set_memory_limit(memory_bytes)
        self._context.eval(_PRELUDE.read_text())
        self._begin = self._context.get("begin")
        self._outcome = self._context.get("outcome")
        self._context.eval("delete globalThis.begin; delete globalThis.outcome; undefined")

    def warm_up(self) -> None:
        """Run a small script after the fork, so that user code finds copied memory pages.

        Copying the pages takes longer than most runs.
        """
        self.evaluate(_WARM_UP_REQUEST, 1.0)

    def evaluate(self, request: bytes, seconds: float) -> bytes:
        """Return `R` and the result as JSON, or `E` and the reason.

        `seconds` limits the processor time of the code, and the time in which its promises resolve.
        The caller also limits the elapsed time, which ends functions that QuickJS cannot interrupt.
        """
        until = time.monotonic() + seconds
        self._context.set_time_limit(seconds)
        try:
            self._begin(request.decode())
            while (outcome := self._outcome()) is None:
                if time.monotonic() > until:
                    return _encode_failure("took too long")
                if not self._context.execute_pending_job():
                    return _encode_failure("the returned promise never resolves")
        except quickjs.JSException as error:
            return _describe_error(error)
        except MemoryError:
            return _encode_failure("needs too much memory")
        except UnicodeDecodeError:  # the error has half of a surrogate pair
            return _encode_failure("raised text that is not Unicode")
        answer = str(outcome).encode(errors="replace")
        return (
            answer
            if len(answer) <= self._output_bytes
            else _encode_failure("the result is too large")
        )


def _describe_error(error: Exception) -> bytes:
    """Return the reason of a QuickJS error; the prelude reports errors of user code."""
    text = str(error).partition("\n")[0]
    if "interrupted" in text:
        return _encode_failure("took too long")
    if "out of memory" in text or text == "null":
        return _encode_failure("needs too much memory")
    return _encode_failure(text)


def _encode_failure(text: str) -> bytes:
    return b"E" + text.encode(errors="replace")


class RunProcess(NamedTuple):
    """A child process for one run, and the worker's ends of its pipes."""

    pid: int
    request_fd: int
    answer_fd: int


def main(memory_bytes: int, output_bytes: int) -> None:
    """Handle requests from standard input until it is closed."""
    end_with_parent()
    lower_priority()
    import_cel_extension()  # before a child loses access to files
    interpreter = Interpreter(memory_bytes, output_bytes)
    while True:
        child = _fork_run_process(interpreter, memory_bytes)
        request = read_frame(0)
        if request is None:
            return
        write_frame(1, _request_child(child, request, output_bytes))
        _end_child(child)


def _fork_run_process(interpreter: Interpreter, memory_bytes: int) -> RunProcess:
    child_request_fd, request_fd = os.pipe()
    answer_fd, child_answer_fd = os.pipe()
    pid = os.fork()
    if pid:
        os.close(child_request_fd)
        os.close(child_answer_fd)
        return RunProcess(pid, request_fd, answer_fd)
    try:
        end_with_parent()
        for descriptor in (0, 1, 2, request_fd, answer_fd):
            os.close(descriptor)
        confine_process(2 * memory_bytes)
        interpreter.warm_up()
        _handle_request(interpreter, child_request_fd, child_answer_fd)
    finally:
        os._exit(0)


def _handle_request(interpreter: Interpreter, request_fd: int, answer_fd: int) -> None:
    """Handle one request in a child."""
    request = read_frame(request_fd)
    if request is not None:
        (seconds,) = TIME_LIMIT_HEADER.unpack_from(request)
        kind, content = request[TIME_LIMIT_HEADER.size :][:1], request[TIME_LIMIT_HEADER.size + 1 :]
        done = (
            _evaluate_condition(content)
            if kind == CEL_REQUEST
            else interpreter.evaluate(content, seconds)
        )
        write_frame(answer_fd, done)


def _request_child(child: RunProcess, request: bytes, output_bytes: int) -> bytes:
    """Return the response of a child, or how it ended."""
    (seconds,) = TIME_LIMIT_HEADER.unpack_from(request)
    try:
        write_frame(child.request_fd, request)
        answer = _read_answer(
            child, time.monotonic() + seconds + ELAPSED_GRACE_SECONDS, output_bytes
        )
    except BrokenPipeError:
        answer = None
    return answer if answer is not None else b"E" + _describe_end(child.pid)


def _read_answer(child: RunProcess, until: float, max_bytes: int) -> bytes | None:
    """Read the frame of a child, which user code may have written.

    Returns None if the child ended first, and a failure if the frame is late or too large.
    """
    content = b""
    while len(content) < FRAME_HEADER.size or len(content) < _frame_size(content):
        if not _wait_readable(child, until):
            return b"Etook too long"
        more = os.read(child.answer_fd, _READ_BYTES)
        if not more:
            return None
        content += more
        if (
            len(content) >= FRAME_HEADER.size
            and _frame_size(content) > FRAME_HEADER.size + max_bytes
        ):
            return _encode_failure("the result is too large")
    return content[FRAME_HEADER.size : _frame_size(content)]


def _wait_readable(child: RunProcess, until: float) -> bool:
    """Wait for a child's answer; return False if none has arrived at `until`.

    After `USUAL_SECONDS` the child gets only idle processor time.
    """
    for seconds in (USUAL_SECONDS, max(0.0, until - time.monotonic())):
        if select.select([child.answer_fd], [], [], seconds)[0]:
            return True
        use_idle_time(child.pid)
    return False


def _frame_size(content: bytes) -> int:
    (size,) = FRAME_HEADER.unpack_from(content)
    return FRAME_HEADER.size + int(size)


def _describe_end(pid: int) -> bytes:
    """Return why a child closed its pipe; `_end_child` collects the process."""
    exit_info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if exit_info is None or exit_info.si_code == os.CLD_EXITED:
        return b"ended without a result"
    if exit_info.si_status == signal.SIGSYS:
        return b"was ended, because it tried to leave the sandbox"
    return f"was ended by {signal.Signals(exit_info.si_status).name}".encode()


def _end_child(child: RunProcess) -> None:
    os.close(child.request_fd)
    os.close(child.answer_fd)
    os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)


def _evaluate_condition(request: bytes) -> bytes:
    """Return `R` and the value of a CEL condition as JSON, or `E` and the reason."""
    text, variables = json.loads(request)
    try:
        return b"R" + json.dumps(evaluate_cel(text, variables), default=str).encode()
    except CelFailed as error:
        return b"E" + str(error).encode(errors="replace")
    except (MemoryError, RecursionError):
        return b"Eneeds too much memory"
