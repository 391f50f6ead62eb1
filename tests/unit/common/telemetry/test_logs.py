"""Lines of the log, for people and for machines."""

import json
import logging
import sys
from collections.abc import Callable
from contextvars import copy_context

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from libs.common.telemetry.logs import TEXT_FORMAT, JsonFormatter, TextFormatter, add_log_fields
from libs.common.telemetry.tracing import begin_trace, current_trace


def record(text: str, *values: object, failed: bool = False) -> logging.LogRecord:
    """What a logger makes of a line."""
    error = sys.exc_info() if failed else None
    return logging.LogRecord("a.module", logging.WARNING, "", 0, text, values, error)


def alone(test: Callable[[], None]) -> None:
    """Run in a context of its own, as tasks do."""
    copy_context().run(test)


def test_a_json_line_is_one_object() -> None:
    """Time, level, service, logger and message; line breaks do not break it."""
    line = JsonFormatter("device").format(record("two\nlines of %s", "text"))
    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "WARNING",
        "service": "device",
        "logger": "a.module",
        "message": "two\nlines of text",
    }


def test_a_json_line_has_the_trace_of_an_exception() -> None:
    """In the same object."""
    try:
        int("why")
    except ValueError:
        found = json.loads(JsonFormatter("device").format(record("failed", failed=True)))
    assert found["exception"].endswith("'why'")


def test_lines_of_a_task_have_its_names(spans: InMemorySpanExporter) -> None:
    """Request and run, and the trace; lines of others do not."""

    def work() -> None:
        add_log_fields(requestId="r1")
        add_log_fields(runId="7")
        with begin_trace("request", SpanKind.SERVER):
            found = json.loads(JsonFormatter("device").format(record("text")))
            _, trace, span, _ = current_trace().split("-")
        assert (found["requestId"], found["runId"]) == ("r1", "7")
        assert (found["traceId"], found["spanId"]) == (trace, span)
        text = TextFormatter(TEXT_FORMAT).format(record("text"))
        assert text.endswith("WARNING a.module text requestId=r1 runId=7")

    alone(work)
    assert "requestId" not in JsonFormatter("device").format(record("text"))


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("cannot reach nats://user:word@host:4222", "user:word"),
        ("cannot reach mongodb://user:word@h1,h2/?replicaSet=rs0", "word"),
        ("redis+sentinel://:word@h1:26379/main", "word"),
        ("sent Authorization: Bearer abcdefgh12345", "abcdefgh12345"),
    ],
)
def test_no_line_contains_a_login(text: str, hidden: str) -> None:
    """This holds for text and JSON, and for lines of libraries."""
    for lines in (JsonFormatter("device"), TextFormatter(TEXT_FORMAT)):
        found = lines.format(record(text))
        assert hidden not in found
        assert "***" in found
