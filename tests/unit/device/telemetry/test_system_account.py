"""Whose connection an event tells of."""

from typing import Any

import msgspec
import pytest

from libs.common.contracts.auth import Connection
from services.device.telemetry.system_account import ConnectedUser, ConnectionChange


def change(sn: str, number: int, reason: str | None = None, **client: Any) -> ConnectionChange:
    body = {
        "server": {"id": "A"},
        "client": {"id": number, "user": sn, "issuer_key": "K", **client},
        **({"reason": reason} if reason is not None else {}),
    }
    return msgspec.convert(body, ConnectionChange)


def test_an_event_names_the_device_of_a_connection():
    """It has the SN in capitals, the server and the number of the connection."""
    assert change("Sn1", 1).user == ConnectedUser(Connection("A", 1), "SN1")
    assert (change("Sn1", 1).is_opened, change("Sn1", 1, "Kicked").is_opened) == (True, False)


@pytest.mark.parametrize("name", ["app.1", "integration.lamps"])
def test_applications_and_integrations_are_no_devices(name: str):
    """Their names have a dot, and no SN has."""
    user = change(name, 1).user
    assert user is not None
    assert not user.is_device


@pytest.mark.parametrize("client", [{"issuer_key": ""}, {"user": ""}])
def test_services_are_nobody(client: dict[str, Any]):
    """Only who came through the auth callout is somebody from outside."""
    assert change("SN1", 1, **client).user is None
