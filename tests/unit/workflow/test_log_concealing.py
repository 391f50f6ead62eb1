"""Logs of runs are shown without values of entities that are write-only now."""

import msgspec

from services.workflow.engine.trace import render_value
from services.workflow.flows.logs import find_possible_entity_keys, mask_values
from services.workflow.runs.model import TraceItem

PIN, LEVEL = "direct.device.L1.pin", "direct.device.L1.level"


def trace(given: object, output: object) -> TraceItem:
    return TraceItem(
        message_id="1",
        node_id="n",
        node_label="code",
        node_name="n",
        status="SUCCESS",
        start_time=1,
        time_cost=1,
        input=render_value(given),
        output=render_value(output),
    )


def test_values_of_hidden_entities_are_masked_at_every_level():
    traces = [trace({PIN: "8642", LEVEL: 5}, [{"before": {PIN: {"a": "8642"}}}])]

    assert set(find_possible_entity_keys(traces, 100)) == {PIN, LEVEL}
    (shown,) = mask_values(traces, {PIN})
    assert msgspec.json.decode(shown.input or "") == {PIN: "******", LEVEL: 5}
    assert msgspec.json.decode(shown.output or "") == [{"before": {PIN: "******"}}]


def test_a_text_that_was_cut_off_is_masked_whole():
    traces = [trace(None, {PIN: "8642", "long": "x" * 20_000})]

    assert find_possible_entity_keys(traces, 100) == [PIN]
    (shown,) = mask_values(traces, {PIN})
    assert "8642" not in (shown.output or "")


def test_other_texts_stay_as_they_are():
    traces = [trace({LEVEL: 5}, None)]

    assert mask_values(traces, {PIN}) == traces
