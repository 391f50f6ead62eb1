"""The device service as a whole."""

from tests.integration.device.values.conftest import lamps, started, world

__all__ = ["lamps", "started", "world"]
