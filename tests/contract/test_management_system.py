"""Is the platform well: what super-admins and the gateway tell."""

import pytest

from libs.common.version import VERSION
from tests.contract.console import Console
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("contract")


async def test_super_admins_see_how_far_storing_lags(admin: Console, other_admin: Console) -> None:
    """Those of every tenant, and no number tells how much others send."""
    for console in (admin, other_admin):
        streams = await console.done("GET", "/system/streams")
        assert [stream["name"] for stream in streams] == ["UPLINK", "EVENTS", "DEAD"]
        for stream in streams:
            assert set(stream) == {"name", "oldest_seconds", "fill", "missing_copies"}
            assert stream["oldest_seconds"] >= 0
            assert 0 <= stream["fill"] < 1
            assert stream["missing_copies"] == 0


async def test_readiness_contains_the_version_of_each_service(
    platform: Platform, admin: Console
) -> None:
    """Parts that are not Thingway's services have no version."""
    states = (await admin.http.get("/readyz")).json()
    assert states.pop("redis") == "ok"
    assert set(states.values()) == {f"ok: {VERSION}"}
    assert {"auth", "device", "management", "workflow", "device-ingest"} <= set(states)
