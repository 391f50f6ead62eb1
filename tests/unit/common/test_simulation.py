"""A simulated device shows what its TSL lets it show, and obeys what its TSL lets it take."""

import random
from typing import Any

import pytest

from libs.common.simulation import SimulatedDevice
from libs.common.tsl import compile_tsl, parse_document
from tests.unit.deploy.local.test_simulator import set_properties

TSL: dict[str, Any] = {
    "version": "v1.0",
    "properties": [
        {
            "id": "level",
            "accessMode": "R",
            "dataSpec": {"dataType": "INT", "validator": {"min": 3, "max": 9}},
        },
        {
            "id": "mode",
            "accessMode": "RW",
            "dataSpec": {"dataType": "ENUM", "mapping": {"0": "a", "1": "b"}},
        },
        {"id": "pin", "accessMode": "W", "dataSpec": {"dataType": "STRING"}},
    ],
    "events": [],
    "services": [
        {
            "id": "weigh",
            "callType": "SYNC",
            "inputs": [],
            "outputs": [
                {
                    "id": "weigh.kilos",
                    "dataSpec": {"dataType": "FLOAT", "validator": {"min": 1, "max": 2}},
                }
            ],
        }
    ],
}


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice(parse_document(TSL), random.Random(1))


def test_simulated_values_are_valid(device):
    """A thousand measurements are within the bounds and contain no write-only property."""
    tsl = compile_tsl(parse_document(TSL))
    for _ in range(1000):
        values = device.measure()
        assert tsl.check_report(values) == (values, [])
        assert set(values) == {"level", "mode"}


def test_a_write_only_setting_is_stored_and_never_reported(device):
    """Neither the next nor later measurements contain it."""
    outcome = device.handle(set_properties("c1", pin="1234", mode="1"))
    assert outcome.reply["status"] == "SUCCESS"
    assert outcome.report == {"mode": "1"}
    assert "pin" not in device.measure()


def test_a_service_answers_with_the_outputs_that_it_has(device):
    """They are within their bounds."""
    outcome = device.handle({"commandId": 1, "kind": "CALL_SERVICE", "serviceId": "weigh"})
    assert 1 <= outcome.reply["outputs"]["kilos"] <= 2
    assert outcome.report == {}
