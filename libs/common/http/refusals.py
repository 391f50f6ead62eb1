"""One line in the log for each refused request, which its request id finds."""

import logging
import time

from libs.common.errors import ThingwayError

MOST_LINES = 200
"""Lines a second: a flood of wrong requests must not fill the disk."""


class LineLimit(logging.Filter):
    """Passes at most `most` lines a second; the next line says how many are missing."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._second = 0
        self._passed = 0
        self._missing = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is logged."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._passed = second, 0
        if self._passed >= self._most:
            self._missing += 1
            return False
        self._passed += 1
        if self._missing:
            record.msg = f"{record.msg} ({self._missing} lines like this one are missing)"
            self._missing = 0
        return True


log = logging.getLogger(__name__)
log.addFilter(LineLimit(MOST_LINES))


def log_refusal(error: ThingwayError, method: str, where: str) -> None:
    """Log a refused request: its method, path template and fault.

    Paths and messages stay out of the log, as both may hold secrets.
    """
    reason = f"{error.code} {error.field!r:.130}" if error.field else error.code
    log.info("refused %s %s: %d %s", method, where or "?", error.status, reason)


def log_failure(status: int, method: str, where: str) -> None:
    """Log that a service refused a request which the gateway passed on."""
    log.info("answered %s %s: %d", method, where, status)
