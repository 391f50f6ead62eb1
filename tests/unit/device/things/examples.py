"""A thing to test with."""

import time
from typing import Any

from libs.common.contracts.events import DeviceProfile
from libs.common.tsl import compile_tsl, parse_document
from services.device.things.model import Thing
from tests.integration.device.telemetry.world import TSL

_TSL = compile_tsl(parse_document(TSL))


def thing(**more: Any) -> Thing:
    """The device 7 of application 1."""
    given: dict[str, Any] = {
        "id": 7,
        "sn": "SN7",
        "tenant": "default",
        "model": "m",
        "tsl_version": "v1.0",
        "application_id": 1,
        "data_storage": True,
        "device_type": "COMMON",
        "online": False,
        "profile": DeviceProfile(7, "SN7"),
        "tsl": _TSL,
        "reported_fields": {},
        "loaded_at": time.monotonic(),
    }
    return Thing(**{**given, **more})
