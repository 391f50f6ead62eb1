"""The data format of MongoDB."""

from typing import Any

import pytest

from deploy.platform.mongo_server import raise_compatibility_version


class Server:
    """A server of a version, whose data have the format of another."""

    def __init__(self, version: str, compatibility: str) -> None:
        self.admin = self
        self.version, self.compatibility = version, compatibility
        self.options: dict[str, Any] = {}

    async def command(self, command: Any, value: Any = None, **options: Any) -> dict[str, Any]:
        if command == "buildInfo":
            return {"versionArray": [*map(int, self.version.split(".")), 0]}
        if command == "setFeatureCompatibilityVersion":
            self.compatibility, self.options = value, options
        return {"featureCompatibilityVersion": {"version": self.compatibility}}


@pytest.mark.parametrize(
    ("version", "before", "raised", "options"),
    [
        ("6.0.5", "6.0", None, {}),
        ("6.0.5", "5.0", "6.0", {}),
        ("7.0.2", "6.0", "7.0", {"confirm": True}),
        ("8.0.4", "7.0", "8.0", {"confirm": True}),
        ("8.2.0", "8.0", "8.2", {"confirm": True}),
    ],
)
async def test_the_data_get_the_format_of_the_running_version(
    version: str, before: str, raised: str | None, options: dict[str, Any]
) -> None:
    """From 7.0 on the command requires a confirmation, which 6.0 rejects."""
    server: Any = Server(version, before)
    assert await raise_compatibility_version(server) == raised
    assert (server.compatibility, server.options) == (raised or before, options)
