"""The simulated device executes each command once and reports the changes."""

import random
import time

import pytest

from deploy.local.simulator import DemoDevice
from deploy.platform.bootstrap import read_demo_product


@pytest.fixture
def device() -> DemoDevice:
    return DemoDevice("DEMO1", read_demo_product()["tsl"], random.Random(1))


def set_properties(command_id: str, **properties) -> dict:
    return {"commandId": command_id, "kind": "SET_PROPERTIES", "properties": properties}


def test_set_properties_changes_the_reported_values(device: DemoDevice) -> None:
    """New values are reported immediately and in later reports."""
    outcome = device.handle(set_properties("c1", led=True, reporting_interval={"time": 9}))
    assert outcome.reply == {"commandId": "c1", "status": "SUCCESS"}
    assert outcome.report == {"led": True, "reporting_interval": {"time": 9}}
    assert device.measure()["reporting_interval"] == {"time": 9}


def test_a_command_delivered_twice_is_executed_once(device: DemoDevice) -> None:
    """The second delivery gets the same reply and changes nothing."""
    first = device.handle(set_properties("c1", led=True))
    device.handle(set_properties("c2", led=False))
    again = device.handle(set_properties("c1", led=True))
    assert again.reply == first.reply
    assert again.report == {}
    assert device.measure()["led"] is False


@pytest.mark.parametrize(
    "command",
    [
        set_properties("c1", temperature=20.0),
        {"commandId": "c1", "kind": "CALL_SERVICE", "serviceId": "fly"},
        {"commandId": "c1", "kind": "DANCE"},
        set_properties("c1", led=True) | {"expiresAt": int(time.time() * 1000) - 1},
    ],
)
def test_an_impossible_command_fails_with_a_reason(device: DemoDevice, command: dict) -> None:
    """Read-only properties, unknown services and kinds, and expired commands fail."""
    outcome = device.handle(command)
    assert outcome.reply["status"] == "FAILED"
    assert outcome.reply["error"]
    assert outcome.report == {}


def test_a_service_call_returns_outputs(device: DemoDevice) -> None:
    """`identify` turns the LED on and succeeds."""
    call = {"commandId": 5, "kind": "CALL_SERVICE", "serviceId": "identify"}
    outcome = device.handle(call | {"inputs": {"duration": 3}})
    assert outcome.reply == {"commandId": 5, "status": "SUCCESS", "outputs": {}}
    assert outcome.report == {"led": True}


def test_a_profile_sets_known_properties(device: DemoDevice) -> None:
    """Unknown keys of a profile are ignored."""
    values = [{"key": "led", "value": True}, {"key": "unknown", "value": 1}]
    outcome = device.handle({"commandId": "c1", "kind": "SET_PROFILE", "values": values})
    assert outcome.report == {"led": True}
