"""Benchmark of an authenticated GET through the gateway, against nginx.

Both use the same service process and check the token with the same code: nginx calls an endpoint
that uses `TokenReader` and `HeaderSigner` (`auth_request`). The gateway is one process, and nginx
has a worker per core: the better choice for each on two cores, one of which the service needs.
Rounds alternate, connections are persistent, and the median of the ratios counts. `python -m
bench.gateway device` and `... tokens` run the two services.
"""

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from litestar import Request, Response, get
from litestar.params import FromPath

from bench.stack import ROOT, ready
from bench.table import Row, median_value
from deploy.local import programs
from deploy.platform import ports, redis_server
from libs.common.http import ServiceDescription, create_app, run_service, serve, wrap_success
from libs.common.identity import (
    PRINCIPAL_HEADER,
    HeaderSigner,
    HeaderVerifier,
    Principal,
    PrincipalKind,
    generate_keys,
)
from libs.common.identity.tokens import TokenReader
from libs.common.settings import StoreSettings, load_settings
from libs.common.store.redis import connect_redis
from libs.common.telemetry import start_telemetry
from services.auth.tokens.writer import TokenWriter
from services.gateway.settings import GatewaySettings

ROUNDS, SECONDS, CONNECTIONS = 7, 4, 64
BAR = 1.0
NAME = "GET a device, through the gateway / nginx auth_request"
PATH = "/device/openapi/v1/devices/1000001"
RECORD = {
    "sn": "6127D0123456",
    "deviceId": 1000001,
    "name": "Meeting room",
    "model": "AM307",
    "connectStatus": "ONLINE",
    "tags": ["floor 3", "north"],
    "createdAt": 1760000000000,
}
NGINX = """
daemon off; worker_processes auto; pid {directory}/nginx.pid; error_log {directory}/nginx.log warn;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {directory}; proxy_temp_path {directory}; fastcgi_temp_path {directory};
  uwsgi_temp_path {directory}; scgi_temp_path {directory};
  upstream device {{ server 127.0.0.1:{device}; keepalive 256; keepalive_requests 10000000; }}
  upstream tokens {{ server 127.0.0.1:{tokens}; keepalive 256; keepalive_requests 10000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=2048;
    keepalive_requests 10000000;
    proxy_http_version 1.1;
    location = /check {{
      internal;
      proxy_pass http://tokens/check;
      proxy_pass_request_body off;
      proxy_set_header Content-Length "";
      proxy_set_header Connection "";
    }}
    location / {{
      auth_request /check;
      auth_request_set $principal $upstream_http_x_thingway_principal;
      proxy_pass http://device;
      proxy_set_header Connection "";
      proxy_set_header Authorization "";
      proxy_set_header X-Thingway-Principal $principal;
      proxy_set_header X-Request-Id $request_id;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Forwarded-Host $http_host;
      add_header X-Request-Id $request_id;
    }}
  }}
}}
"""


class Load(NamedTuple):
    """Result of a round."""

    rate: float
    """Requests per second."""
    p99: float
    """p99 latency in ms."""


async def run() -> list[Row]:
    """Run the benchmark; without nginx or wrk, return a row with this reason."""
    missing = [program for program in ("nginx", "wrk") if shutil.which(program) is None]
    if missing:
        return [Row(NAME, f"not measured: no {' and no '.join(missing)} on PATH")]
    directory = Path(tempfile.mkdtemp(prefix="thingway-bench-"))
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        ours, theirs, token = await _start(directory, cleanup)
        await _load(ours, token, seconds=1)
        await _load(theirs, token, seconds=1)
        rounds = [(await _load(ours, token), await _load(theirs, token)) for _ in range(ROUNDS)]
    return list(_rows(rounds))


def _rows(rounds: list[tuple[Load, Load]]) -> Iterator[Row]:
    rate = median_value([ours.rate / theirs.rate for ours, theirs in rounds])
    p99 = median_value([ours.p99 / theirs.p99 for ours, theirs in rounds])
    yield Row(
        f"{NAME}, requests/s",
        f"{median_value([ours.rate for ours, _ in rounds]):,.0f}",
        f"{median_value([theirs.rate for _, theirs in rounds]):,.0f}",
        rate,
        f">= {BAR}",
        rate >= BAR,
    )
    yield Row(
        f"{NAME}, p99 in ms",
        f"{median_value([ours.p99 for ours, _ in rounds]):.1f}",
        f"{median_value([theirs.p99 for _, theirs in rounds]):.1f}",
        p99,
        "<= 1.0",
        p99 <= 1.0,
    )


async def _start(directory: Path, cleanup: contextlib.ExitStack) -> tuple[str, str, str]:
    """Start all processes; return the two URLs and a token."""
    redis, device, tokens, gateway, nginx = (ports.claim_random() for _ in range(5))
    redis_url = f"redis://127.0.0.1:{redis}/0"
    private, public = generate_keys()
    environment = {
        **os.environ,
        "THINGWAY_REDIS_URL": redis_url,
        "THINGWAY_INTERNAL_PRIVATE_KEY": private,
        "THINGWAY_INTERNAL_PUBLIC_KEY": public,
        "THINGWAY_UPSTREAMS": f"device=http://127.0.0.1:{device}",
        "THINGWAY_NATS_URL": "nats://127.0.0.1:1",
        "THINGWAY_PRINCIPAL_RATE": "1000000",
        "THINGWAY_PRINCIPAL_BURST": "1000000",
        "THINGWAY_ADDRESS_RATE": "1000000",
        "THINGWAY_ADDRESS_BURST": "1000000",
    }
    config = directory / "nginx.conf"
    config.write_text(NGINX.format(directory=directory, device=device, tokens=tokens, port=nginx))
    service = [sys.executable, "-m"]
    redis_program = programs.find_program(programs.REDIS).path
    for command, port in (
        (redis_server.bare_server_command(redis_program, directory, redis), 0),
        ([*service, "bench.gateway", "device"], device),
        ([*service, "bench.gateway", "tokens"], tokens),
        ([*service, "services.gateway"], gateway),
        (["nginx", "-c", str(config)], 0),
    ):
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment | {"THINGWAY_PORT": str(port)},
            stdout=subprocess.DEVNULL,
            stderr=(directory / "log").open("ab"),
        )
        cleanup.callback(child.wait)
        cleanup.callback(child.terminate)
    await redis_server.wait_ready(redis_url)
    for port in (device, tokens, gateway):
        await ready(port)
    async with connect_redis(redis_url) as client:
        writer = TokenWriter(client, access_life=3600, refresh_life=3600)
        principal = Principal(
            kind=PrincipalKind.APPLICATION, tenant="default", subject="1", name="bench"
        )
        pair: Any = await writer.issue(principal, 1)
    return f"http://127.0.0.1:{gateway}{PATH}", f"http://127.0.0.1:{nginx}{PATH}", pair.access


async def _load(url: str, token: str, seconds: int = SECONDS) -> Load:
    """Run wrk once; raise if a response is not successful."""
    process = await asyncio.create_subprocess_exec(
        *("wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency"),
        *("-H", f"Authorization: Bearer {token}", url),
        stdout=subprocess.PIPE,
    )
    text = (await process.communicate())[0].decode()
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)", text)
    if rate is None or p99 is None or "Non-2xx" in text or "Socket errors" in text:
        raise RuntimeError(f"the round failed:\n{text}")
    return Load(float(rate[1]), float(p99[1]) * {"us": 0.001, "ms": 1.0, "s": 1000.0}[p99[2]])


async def serve_role(role: str) -> None:
    """Serve the device record, or the token check for nginx."""
    settings = load_settings(GatewaySettings)
    signer = HeaderSigner(settings.internal_private_key)
    tokens = TokenReader(connect_redis(settings.redis_url))

    @get("/device/openapi/v1/devices/{device_id:int}", sync_to_thread=False)
    def device(request: Request[Any, Any, Any], device_id: FromPath[int]) -> Any:
        return wrap_success(request, RECORD | {"deviceId": device_id})

    @get("/check")
    async def check(request: Request[Any, Any, Any]) -> Response[None]:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        principal = await tokens.principal(token)
        if principal is None:
            return Response(None, status_code=401)
        return Response(None, status_code=204, headers={PRINCIPAL_HEADER: signer.sign(principal)})

    app = create_app(
        ServiceDescription(
            name=role,
            title=role,
            routes=[device, check],
            verifier=HeaderVerifier(load_settings(StoreSettings).internal_public_key),
            telemetry=start_telemetry(role),
            public_paths=frozenset({"/check"}),
        )
    )
    await serve(app, settings)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_service("gateway", lambda: serve_role(sys.argv[1]))
    else:
        for row in asyncio.run(run()):
            print(row)
