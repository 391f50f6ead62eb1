"""One piece of JavaScript in QuickJS, in the process that is there for it alone."""

import time
from pathlib import Path

import quickjs

_PRELUDE = Path(__file__).with_name("prelude.js")
_NOTHING_MUCH = b'["return {a: b * 1.5, c: b > 30}", ["b"], [20]]'


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
