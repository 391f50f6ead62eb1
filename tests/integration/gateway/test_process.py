"""The gateway as a process: settings, metrics, and an orderly end."""

import asyncio
import os
import signal
import sys

import httpx

from deploy.checkup.processes import check_processes
from deploy.local.process import PROJECT_ROOT
from deploy.platform import ports
from libs.common.identity import HeaderVerifier, generate_keys
from libs.common.store.redis import Redis
from tests.servers import Servers

from .conftest import DEVICES, Gateway, Recorder, answer


async def started(environment: dict[str, str]) -> asyncio.subprocess.Process:
    """Start `python -m services.gateway`."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.gateway", cwd=PROJECT_ROOT,
        env={**os.environ, **environment}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def test_the_process_finishes_requests_after_sigterm(
    servers: Servers, redis: Redis, device: Recorder
) -> None:
    """The port for operators shows the finished request."""
    port, operations, (private, public) = (
        ports.claim_random(),
        ports.claim_random(),
        generate_keys(),
    )
    process = await started(
        {
            "THINGWAY_PORT": str(port),
            "THINGWAY_OPERATIONS_PORT": str(operations),
            "THINGWAY_REDIS_URL": servers.redis_url,
            "THINGWAY_NATS_URL": servers.nats_url,
            "THINGWAY_INTERNAL_PRIVATE_KEY": private,
            "THINGWAY_UPSTREAMS": f"device=http://127.0.0.1:{device.port}",
        }
    )
    entered = asyncio.Event()

    async def slowly(seen, receive, send):
        entered.set()
        await asyncio.sleep(0.5)
        await answer(send, b"late")

    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as http:
        gateway = Gateway(port, redis, HeaderVerifier(public), http)
        async with asyncio.timeout(20):
            while not await _answers(http):
                await asyncio.sleep(0.05)
        headers = await gateway.bearer()
        assert (await http.get(f"{DEVICES}/5", headers=headers)).status_code == 200
        assert (await http.get(f"{DEVICES}/5")).status_code == 401
        assert (await http.get("/metrics")).status_code == 404
        metrics = (await http.get(f"http://127.0.0.1:{operations}/metrics")).text
        ready = (await http.get(f"http://127.0.0.1:{operations}/readyz")).json()
        assert ready["redis"] == "ok"
        until = asyncio.get_running_loop().time() + 10
        found = await check_processes({"gateway": f"http://127.0.0.1:{port}"}, "", until)
        assert [(one.subject, one.good) for one in found] == [("service gateway", True)]
        device.respond = slowly
        request = asyncio.ensure_future(http.get(f"{DEVICES}/5", headers=headers))
        await asyncio.wait_for(entered.wait(), 5)
        process.send_signal(signal.SIGTERM)
        assert (await request).text == "late"
    assert await asyncio.wait_for(process.wait(), 10) in {0, -signal.SIGTERM}
    counted = [line for line in metrics.splitlines() if "gateway_requests_total{" in line]
    assert any('status="2xx"' in line and line.endswith(" 1.0") for line in counted)
    assert any('status="4xx"' in line and 'route="device"' in line for line in counted)
    assert "thingway_gateway_latency_seconds_bucket" in metrics


async def _answers(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/healthz")).status_code == 200
    except httpx.TransportError:
        return False


async def test_bad_setting_ends_with_one_line() -> None:
    """A setting that cannot be read ends the process with a line that names it."""
    private, _ = generate_keys()
    process = await started(
        {
            "THINGWAY_INTERNAL_PRIVATE_KEY": private,
            "THINGWAY_UPSTREAMS": "device=http://127.0.0.1:1",
            "THINGWAY_TRUSTED_PROXIES": "somewhere",
        }
    )
    _, text = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 1
    (line,) = text.decode().splitlines()
    assert "THINGWAY_TRUSTED_PROXIES" in line
