"""Log lines as text or JSON, with request, run and trace."""

import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

import msgspec
from opentelemetry import trace

LogFormat = Literal["text", "json"]

TEXT_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
NOISY_LOGGERS = ("pymongo", "nats", "uvicorn.error", "opentelemetry")
"""Libraries that are logged only from WARNING on."""
HIDDEN_TEXT = "***"
_URL_LOGIN = re.compile(r"(?<=://)[^\s/@'\"]+(?=@)")
_HTTP_TOKEN = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")

_log_fields: ContextVar[dict[str, str]] = ContextVar("thingway_log_names")


def add_log_fields(**names: str) -> None:
    """Add values, such as `requestId`, to each later log line of this task."""
    _log_fields.set(_line_names() | names)


def get_log_field(name: str) -> str:
    """Return a value that `add_log_fields` added in this task; empty without one."""
    return _line_names().get(name, "")


def log_to_stderr(level: str, form: LogFormat, service: str) -> None:
    """Log to standard error from `level` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service) if form == "json" else TextFormatter(TEXT_FORMAT))
    logging.basicConfig(level=level, handlers=[handler])
    for noisy in NOISY_LOGGERS:
        logging.getLogger(noisy).setLevel(max(logging.WARNING, logging.root.level))


def _line_names() -> dict[str, str]:
    return _log_fields.get({})


def _trace_names() -> dict[str, str]:
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return _line_names()
    return _line_names() | {"traceId": f"{span.trace_id:032x}", "spanId": f"{span.span_id:016x}"}


def hide_logins(text: str) -> str:
    """Return `text` without logins in URLs (`nats://***@host`) and without HTTP tokens."""
    return _HTTP_TOKEN.sub(rf"\1 {HIDDEN_TEXT}", _URL_LOGIN.sub(HIDDEN_TEXT, text))


class TextFormatter(logging.Formatter):
    """Formats a line as text, followed by log fields and trace ids."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line with its fields, followed by the traceback of an exception."""
        first, *more = super().format(record).split("\n")
        names = "".join(f" {name}={value}" for name, value in _trace_names().items())
        return hide_logins("\n".join([first + names, *more]))


class JsonFormatter(logging.Formatter):
    """Formats JSON: time, level, service, logger, message, log fields, trace, exception."""

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
            "message": hide_logins(record.getMessage()),
            **_trace_names(),
        }
        if record.exc_info:
            fields["exception"] = hide_logins(self.formatException(record.exc_info))
        return msgspec.json.encode(fields).decode()
