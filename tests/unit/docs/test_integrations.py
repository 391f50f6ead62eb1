"""`docs/how-to/integrations.md` contains the example and every part of the contract."""

import re
from pathlib import Path

import msgspec
import pytest

from libs.common.contracts import integrations as contract
from services.auth.callout.permissions import integration_permissions

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-to/integrations.md").read_text()


def test_the_page_shows_the_example():
    """The Python code of the page equals the file."""
    (shown,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert shown == (ROOT / "examples/integrations/lamps.py").read_text()


@pytest.mark.parametrize("operation", [*contract.EXTERNAL_OPERATIONS])
def test_the_page_names_all_operations_for_integrations(operation):
    """Each operation that an integration may call has a row."""
    assert f"| `{operation}` |" in PAGE


@pytest.mark.parametrize("operation", contract.IntegrationOperation.__args__)
def test_the_page_names_all_operations_of_integrations(operation):
    """Each operation that the platform calls has a row."""
    assert f"| `{operation}` |" in PAGE


@pytest.mark.parametrize(
    "struct",
    [
        contract.AddDevice, contract.NewDevice, contract.DeviceRef, contract.CallService,
        contract.PropertiesUpdated, contract.DeviceCommand, contract.SendReport,
        contract.SendEvent, contract.SendReply, contract.ListDevices, contract.ListedDevices,
        contract.GetTsl, contract.OwnValues, contract.SendOwnReport,
    ],
)  # fmt: skip
def test_the_page_names_the_fields(struct):
    """The page names each field as it is on the wire."""
    for field in msgspec.structs.fields(struct):
        assert f'"{field.encode_name}"' in PAGE, field.encode_name


def test_the_page_names_the_subjects():
    """The subjects on the page equal the permissions of a login."""
    allowed = integration_permissions("{id}")
    told = re.search(r"\| publish \| (.*) \|", PAGE)
    assert told is not None
    listed = re.search(r"rpc\.device\.\{(.*?)\}\.\{id\}", told[1])
    assert listed is not None
    subjects = {f"rpc.device.{one.strip()}.{{id}}" for one in listed[1].split(",")}
    assert subjects | {"rpc.management.announce_integration.{id}"} == set(allowed.publish)
    for subject in allowed.subscribe:
        assert f"`{subject}`" in PAGE
    assert f"every {contract.ANNOUNCE_INTERVAL_SECONDS:g} s" in PAGE
    assert f"{contract.ANNOUNCEMENT_LIFETIME_SECONDS:g} s after the last announcement" in PAGE
