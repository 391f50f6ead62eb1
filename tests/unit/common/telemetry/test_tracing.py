"""Where traces begin, what goes on with them, and what belongs to none."""

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from libs.common.settings import SettingsInvalid
from libs.common.telemetry import tracing
from libs.common.telemetry.tracing import (
    DEFAULT_SAMPLED_SHARE,
    begin_trace,
    continue_trace,
    current_trace,
    read_sampled_share,
    trace_batch,
    trace_header,
    trace_step,
)

STRANGER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_the_gateway_begins_a_trace_with_a_link_to_the_callers(spans: InMemorySpanExporter) -> None:
    """The caller determines neither the trace id nor the sampling."""
    with begin_trace("request", SpanKind.SERVER, STRANGER):
        pass
    (span,) = spans.get_finished_spans()
    assert span.parent is None
    (link,) = span.links
    assert f"{link.context.trace_id:032x}" == STRANGER.split("-")[1]
    assert link.context.trace_id != span.context.trace_id


@pytest.mark.parametrize("nonsense", ["", "x", "00-0-0-01", "00-" + "0" * 32 + "-" + "0" * 16])
def test_nonsense_of_a_stranger_is_no_link(spans: InMemorySpanExporter, nonsense: str) -> None:
    """The request is served all the same."""
    with begin_trace("request", SpanKind.SERVER, nonsense):
        pass
    (span,) = spans.get_finished_spans()
    assert not span.links


def test_an_unsampled_request_has_no_trace(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No span is created, and no message has a header."""
    monkeypatch.setattr(tracing.Sampling, "share", 0.0)
    with begin_trace("request", SpanKind.SERVER, STRANGER), trace_step("step"):
        assert trace_header() == {}
    with continue_trace("message", SpanKind.CONSUMER, ""), trace_batch("batch", ["", ""]):
        assert current_trace() == ""
    assert not spans.get_finished_spans()


def test_a_message_continues_its_trace(spans: InMemorySpanExporter) -> None:
    """Spans of its effects are children of the span that sent it."""
    with begin_trace("request", SpanKind.SERVER):
        header = trace_header()["traceparent"]
    with continue_trace("message", SpanKind.CONSUMER, header), trace_step("step"):
        pass
    found = {span.name: span for span in spans.get_finished_spans()}
    assert found["message"].parent.span_id == found["request"].context.span_id
    assert found["step"].parent.span_id == found["message"].context.span_id
    assert len({span.context.trace_id for span in found.values()}) == 1


def test_a_message_without_a_trace_belongs_to_none(spans: InMemorySpanExporter) -> None:
    """Not to that of the task which takes it up, which may deal with many."""
    with trace_batch("batch", [STRANGER]), continue_trace("message", SpanKind.CONSUMER, ""):
        assert current_trace() == ""
    assert [span.name for span in spans.get_finished_spans()] == ["batch"]


def test_a_batch_has_a_trace_of_its_own_with_a_link_to_each(spans: InMemorySpanExporter) -> None:
    """Those without a trace are left out."""
    others = [STRANGER, "", STRANGER.replace("b7ad", "c7ad")]
    with trace_batch("batch", others):
        pass
    (span,) = spans.get_finished_spans()
    assert span.parent is None
    assert [f"{link.context.span_id:016x}" for link in span.links] == [
        "b7ad6b7169203331",
        "c7ad6b7169203331",
    ]


def test_a_span_has_the_kind_of_an_error_and_not_its_text(spans: InMemorySpanExporter) -> None:
    """Texts of errors may hold what is secret."""
    with pytest.raises(ValueError, match="secret"), begin_trace("request", SpanKind.SERVER):
        raise ValueError("a secret")
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes == {"error.type": "ValueError"}
    assert not span.events
    assert "secret" not in span.to_json()


@pytest.mark.parametrize(
    ("sampler", "argument", "share"),
    [
        ("", "", DEFAULT_SAMPLED_SHARE),
        ("", "0.5", 0.5),
        ("always_on", "", 1.0),
        ("parentbased_always_off", "", 0.0),
        ("parentbased_traceidratio", "0.25", 0.25),
        ("traceidratio", "", 1.0),
    ],
)
def test_the_sampling_rate_is_set_by_opentelemetry_variables(
    sampler: str, argument: str, share: float
) -> None:
    """The default is one in a hundred."""
    given = {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}
    assert read_sampled_share(given) == share


@pytest.mark.parametrize(
    "given",
    [
        {"OTEL_TRACES_SAMPLER": "xray"},
        {"OTEL_TRACES_SAMPLER_ARG": "all"},
        {"OTEL_TRACES_SAMPLER_ARG": "2"},
        {"OTEL_TRACES_SAMPLER_ARG": "nan"},
    ],
)
def test_other_sampling_is_refused(given: dict[str, str]) -> None:
    """The service ends with a line that names the variable."""
    with pytest.raises(SettingsInvalid, match=next(iter(given))):
        read_sampled_share(given)
