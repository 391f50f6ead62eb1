"""Events are shortened to the limit of the bus, and name the omitted parts."""

from typing import Any

import msgspec
import pytest

from libs.common.bus.event_shortening import (
    MAX_EVENT_BYTES,
    MAX_OMITTED_NAMES,
    MAX_SHORTENED_TEXT_LENGTH,
    encode_shortened_event,
)
from libs.common.contracts.events import (
    DeviceProfile,
    PropertiesReported,
    Subcommand,
    TaskFinished,
    WorkflowFinished,
)
from libs.common.errors import TooLarge

DEVICE = DeviceProfile(1, "SN1")
CONTROL = "\x01"
"""JSON writes it with six bytes."""


def reported(properties: dict[str, Any]) -> PropertiesReported:
    return PropertiesReported(
        event_id="e", created_at=1, tenant="t", device=DEVICE, ts=1, properties=properties
    )


def cut(event: msgspec.Struct) -> Any:
    raw = encode_shortened_event(event)
    assert len(raw) <= MAX_EVENT_BYTES
    return msgspec.json.decode(raw, type=type(event))


def test_an_event_that_fits_is_whole():
    """Nothing is left out, and nothing is said of it."""
    event = reported({"a": "x" * 250_000, "b": 1})
    assert encode_shortened_event(event) == msgspec.json.encode(event)


def test_the_largest_properties_are_left_out_and_named():
    """The size in JSON counts: a text of control characters is six times as large there."""
    kept = cut(reported({"small": 1, "control": CONTROL * 80_000, "large": "x" * 150_000}))
    assert kept.properties == {"small": 1, "large": "x" * 150_000}
    assert kept.omitted == ["properties.control"]


def test_many_omitted_parts_are_named_in_part_and_counted():
    """The length of the names is bounded, too."""
    kept = cut(reported({f"{n}{CONTROL * 300}": "x" * 5000 for n in range(500)}))
    assert len(kept.omitted) == MAX_OMITTED_NAMES + 1
    assert kept.omitted[-1] == f"and {500 - len(kept.properties) - MAX_OMITTED_NAMES} more"


def test_items_of_lists_and_ends_of_texts_are_omitted():
    """The rest still has the form of the event."""
    finished = TaskFinished(
        event_id="e",
        created_at=1,
        tenant="t",
        device=DEVICE,
        task_id=1,
        type="TSL",
        status="SUCCESS",
        subcommand=[Subcommand("a", "SUCCESS", "x" * 600_000), Subcommand("b", "SUCCESS", 1)],
    )
    assert cut(finished).subcommand == [Subcommand("b", "SUCCESS", 1)]
    run = WorkflowFinished(
        event_id="e",
        created_at=1,
        tenant="t",
        flow_id=1,
        run_id=1,
        version=1,
        status="ERROR",
        started_at=1,
        time_cost=1,
        error="e" * 2_000_000,
    )
    assert (cut(run).error, cut(run).omitted) == ("e" * MAX_SHORTENED_TEXT_LENGTH, ["error"])


def test_an_event_that_cannot_be_shortened_is_rejected():
    """Otherwise the server would close the connection."""
    event = reported({})
    event.device = DeviceProfile(1, "S" * MAX_EVENT_BYTES)
    with pytest.raises(TooLarge):
        encode_shortened_event(event)
