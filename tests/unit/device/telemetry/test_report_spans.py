"""The spans of a batch of reports."""

import pytest
from nats.aio.msg import Msg

from libs.common.telemetry import tracing
from services.device.telemetry.ingest import UplinkSpans
from services.device.telemetry.uplink import Uplink
from tests.spans import kept_spans

SENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def uplink(sequence: int, trace: str = "") -> Uplink:
    """A message, as read."""
    headers = {"traceparent": trace} if trace else None
    message = Msg(_client=None, subject="thing.S.up.report", headers=headers)  # type: ignore[arg-type]
    return Uplink("S", "report", b"{}", sequence, 1_700_000_000_000, 1, message)


def test_a_batch_joins_traces_and_keeps_them_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message has its trace, the batch its own; links lead from one to the other."""
    kept = kept_spans(monkeypatch)
    spans = UplinkSpans([uplink(1), uplink(2), uplink(3, SENT)])
    with spans.batch_span():
        spans.mark_rejected([spans.uplinks[1]])
    (*reports,) = (span for span in kept.get_finished_spans() if span.name == "ingest message")
    (joined,) = (span for span in kept.get_finished_spans() if span.name == "ingest batch")
    assert len({one.context.trace_id for one in (*reports, joined)}) == 4
    links = {link.context.span_id for link in joined.links}
    assert links == {report.context.span_id for report in reports}
    assert all(report.links[0].context.span_id == joined.context.span_id for report in reports)
    assert all(report.start_time == 1_700_000_000_000_000_000 for report in reports)
    assert [report.attributes.get("error.type") for report in reports] == [None, "refused", None]
    assert f"{reports[2].parent.span_id:016x}" == SENT.split("-")[2]
    assert all(one.trace for one in spans.uplinks)


def test_an_mqtt_report_that_is_not_chosen_has_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that goes on with a trace has: that was decided before."""
    kept = kept_spans(monkeypatch)
    monkeypatch.setattr(tracing.Sampling, "share", 0.0)
    spans = UplinkSpans([uplink(1), uplink(2, SENT)])
    with spans.batch_span():
        pass
    assert [bool(one.trace) for one in spans.uplinks] == [False, True]
    assert len(kept.get_finished_spans()) == 2
