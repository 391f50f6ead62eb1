"""The integrations `direct` and `system`, which have no connections of their own."""

import re

from libs.common.contracts.integrations import AddDevice, NewDevice
from libs.common.errors import InvalidInput
from libs.common.integrations import Integration
from libs.common.things import DIRECT_INTEGRATION, SYSTEM_INTEGRATION
from services.management.manifests import load_manifest

SN_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Permitted SNs, which are tokens of NATS subjects and levels of MQTT topics."""


class System(Integration):
    """Owns custom entities and flows, has no devices; other services answer service calls to it."""

    manifest = load_manifest(SYSTEM_INTEGRATION)


class Direct(Integration):
    """Adds devices by their SN; `device` checks that the product exists and the SN is free."""

    manifest = load_manifest(DIRECT_INTEGRATION)

    async def add_device(self, request: AddDevice) -> NewDevice:
        """Return the SN as identifier; raise `InvalidInput` if it is invalid."""
        serial = request.params["sn"]
        if not SN_PATTERN.fullmatch(serial):
            raise InvalidInput("must be 1 to 64 letters, digits, '_' or '-'", field="sn")
        return NewDevice(identifier=serial, model=request.params.get("model") or "")
