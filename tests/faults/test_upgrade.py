"""Upgrades and the way back, under load: what was acknowledged is stored once."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from deploy.local.process import PROJECT_ROOT
from tests.e2e.platform import MODEL, PRODUCT, THINGWAY, UP, Platform
from tests.e2e.replicas import replicas
from tests.faults.load import Load, settled

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("upgrade")]

RELEASED = "022e4b0"
"""Version 0.1.0."""
BEFORE = "8d537de"
"""The last commit without a version of its own; it serves beside this one."""


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[str], Path]:
    """Unpacks a commit; its requirements are those of today."""

    def unpack(commit: str) -> Path:
        words = ["git", "-C", str(PROJECT_ROOT), "archive", commit]
        packed = subprocess.run(words, capture_output=True)
        if packed.returncode:
            pytest.skip(f"the commit {commit} is not in this checkout")
        found = tmp_path / commit
        found.mkdir()
        subprocess.run(["tar", "-x", "-C", found], input=packed.stdout, check=True)
        return found

    return unpack


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    """Return a platform that the test starts."""
    found = Platform(tmp_path / "data")
    yield found
    found.stop()


async def _begin(platform: Platform) -> tuple[Load, dict[str, int]]:
    platform.start()
    application = platform.application()
    await application.data("PUT", f"/products/{MODEL}", PRODUCT)
    device = await application.add_device()
    await device.http("POST", "report", {"properties": {"counter": 0}}, wait="stored")
    return Load(platform, application), await settled(platform)


async def test_the_released_version_is_upgraded_and_rolled_back_under_load(
    platform: Platform, tree: Callable[[str], Path]
) -> None:
    """From 0.1.0 to this version, back, and forth again, on the same data; then it contracts."""
    old = tree(RELEASED)
    platform.tree = old
    load, before = await _begin(platform)
    async with load.running(2):
        for version in (PROJECT_ROOT, old, PROJECT_ROOT):
            assert platform.stop() == 0
            platform.tree = version
            platform.start()
            await load.goes_on(60)
    await load.check(before)
    words = [THINGWAY, "migrate", "--contract", "--data", platform.directory]
    done = subprocess.run(words, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert "version 0.1" in done.stdout
    device = load.devices[0]
    await device.http("POST", "report", {"properties": {"counter": 10**6}}, wait="stored")
    await load.close()


async def test_the_released_version_becomes_a_cluster_under_load(
    tmp_path: Path, tree: Callable[[str], Path]
) -> None:
    """From 0.1.0 on one of each store to this version on three; there is no way back from that."""
    platform = Platform(tmp_path / "data", tree(RELEASED), command=(*UP, "--cluster"))
    try:
        load, before = await _begin(platform)
        async with load.running(2):
            assert platform.stop() == 0
            platform.tree = PROJECT_ROOT
            platform.start()
            await load.goes_on(60)
        assert len(platform.addresses.nats_url.split(",")) == 3
        await load.check(before)
        await load.close()
    finally:
        platform.stop()


async def test_the_version_before_and_this_one_serve_side_by_side(
    platform: Platform, tree: Callable[[str], Path]
) -> None:
    """While both run nothing is lost, and nothing contracts."""
    platform.tree = tree(BEFORE)
    load, before = await _begin(platform)
    async with load.running(2):
        async with replicas(platform) as url, aiohttp.ClientSession(url) as session:
            async with session.get("/healthz") as answer:
                assert "version" in await answer.json()
            await load.goes_on(60)
            words = [THINGWAY, "migrate", "--contract", "--data", platform.directory]
            done = subprocess.run(words, cwd=PROJECT_ROOT, capture_output=True, text=True)
            assert (done.returncode, "another version" in done.stderr) == (1, True)
        await load.goes_on(60)
    await load.check(before)
    await load.close()
