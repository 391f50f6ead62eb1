"""Log lines as text or JSON, with request, run and trace."""

import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

import msgspec
from opentelemetry import trace

Format = Literal["text", "json"]

FIELDS = "%(asctime)s %(levelname)s %(name)s %(message)s"
NOISY = ("pymongo", "nats", "uvicorn.error", "opentelemetry")
"""Libraries that are logged only from WARNING on."""
HIDDEN = "***"
_LOGIN = re.compile(r"(?<=://)[^\s/@'\"]+(?=@)")
_TOKEN = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")

_names: ContextVar[dict[str, str]] = ContextVar("thingway_log_names")


def name_lines(**names: str) -> None:
    """Add values, such as `requestId`, to each later log line of this task."""
    _names.set(_line_names() | names)


def line_name(name: str) -> str:
    """Return a value that `name_lines` added to the log lines of this task; empty without one."""
    return _line_names().get(name, "")


def log_to_stderr(level: str, form: Format, service: str) -> None:
    """Log to standard error from `level` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(service) if form == "json" else TextLines(FIELDS))
    logging.basicConfig(level=level, handlers=[handler])
    for noisy in NOISY:
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.root.level))


def _line_names() -> dict[str, str]:
    return _names.get({})


def _trace_names() -> dict[str, str]:
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return _line_names()
    return _line_names() | {"traceId": f"{span.trace_id:032x}", "spanId": f"{span.span_id:016x}"}


def without_logins(text: str) -> str:
    """Return `text` without logins in URLs (`nats://***@host`) and without HTTP tokens."""
    return _TOKEN.sub(rf"\1 {HIDDEN}", _LOGIN.sub(HIDDEN, text))


class TextLines(logging.Formatter):
    """Formats a line as text, followed by its names."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, followed by the trace of an exception."""
        first, *more = super().format(record).split("\n")
        names = "".join(f" {name}={value}" for name, value in _trace_names().items())
        return without_logins("\n".join([first + names, *more]))


class JsonLines(logging.Formatter):
    """Formats JSON: `time`, `level`, `logger`, `message`, `service`, names, `exception`."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Return a single line."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "service": self._service,
            "logger": record.name,
            "message": without_logins(record.getMessage()),
            **_trace_names(),
        }
        if record.exc_info:
            fields["exception"] = without_logins(self.formatException(record.exc_info))
        return msgspec.json.encode(fields).decode()
