"""The device of the demo product: what it begins with, what it tells, what `identify` does."""

import random
from typing import Any

from libs.common.simulation import SimulatedDevice
from libs.common.tsl import ServiceSpec, parse_document

_HIGH_TEMPERATURE = 30.0

Values = dict[str, Any]


class DemoDevice(SimulatedDevice):
    """A device of the demo product, without its connection."""

    def __init__(self, sn: str, tsl: Values, rng: random.Random) -> None:
        settings = {"led": False, "reporting_interval": {"time": 3}}
        super().__init__(parse_document(tsl, stored=True), rng, settings)
        self.sn = sn
        self._was_hot = False

    def serve(self, service: ServiceSpec) -> Values:
        """`identify` lights the LED."""
        return {"led": True} if service.id == "identify" else {}

    def event(self) -> Values | None:
        """The event to send after a measurement: once each time it becomes hot."""
        temperature = self.measured.get("temperature", 0.0)
        is_hot = temperature >= _HIGH_TEMPERATURE
        rises, self._was_hot = is_hot and not self._was_hot, is_hot
        if not rises:
            return None
        return {"eventId": "high_temperature", "outputs": {"temperature": temperature}}
