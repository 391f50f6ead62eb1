"""`python -m services.auth` as a process of its own."""

import asyncio
import os
import signal
import sys

import httpx
import pytest

from deploy.platform import ports
from libs.common.identity import generate_keys
from tests.integration.auth.conftest import ISSUER


def environment(servers, database, door, port) -> dict[str, str]:
    settings = {
        "PORT": str(port),
        "MONGO_URL": servers.mongo_url,
        "MONGO_DATABASE": database,
        "REDIS_URL": servers.redis_url,
        "NATS_URL": door.url,
        "NATS_USER": "auth",
        "NATS_PASSWORD": "secret-auth",
        "INTERNAL_PUBLIC_KEY": generate_keys()[1],
        "CALLOUT_SEED": ISSUER.seed,
    }
    return {**os.environ, **{f"THINGWAY_{name}": value for name, value in settings.items()}}


async def start(env: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.auth", env=env, stderr=asyncio.subprocess.PIPE
    )


async def first_answer(
    http: httpx.AsyncClient, process: asyncio.subprocess.Process
) -> httpx.Response:
    async with asyncio.timeout(20):
        while process.returncode is None:
            try:
                return await http.get("/readyz")
            except httpx.TransportError:
                await asyncio.sleep(0.05)
    pytest.fail("the process ended")


async def test_it_serves_and_leaves_in_order(servers, database, door):
    """It is ready within seconds, exports metrics, and SIGTERM ends it with code 0."""
    port = ports.claim_random()
    process = await start(environment(servers, database, door, port))
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            ready = await first_answer(http, process)
            form = {"grant_type": "refresh_token", "refresh_token": "unknown"}
            refused = await http.post("/oauth/token", data=form)
            metrics = (await http.get("/metrics")).text
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 15)

    assert (ready.status_code, refused.status_code) == (200, 401)
    assert 'thingway_logins_total{door="refresh_token"' in metrics
    assert process.returncode == 0, errors.decode()


async def test_bad_settings_end_it_with_one_line(servers, database, door):
    """The line names the variable."""
    env = environment(servers, database, door, 0)
    env["THINGWAY_TENANT_LIMITS"] = "{"

    process = await start(env)
    _, errors = await asyncio.wait_for(process.communicate(), 15)

    assert process.returncode == 1
    assert "THINGWAY_TENANT_LIMITS" in errors.decode()
    assert len(errors.decode().splitlines()) == 1
