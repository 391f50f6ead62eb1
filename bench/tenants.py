"""A tenant of a running platform with credentials for every protocol."""

import itertools
import json
import subprocess
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import aiohttp

from bench.hostile import Login
from bench.live import PRODUCT
from bench.platform import Platform
from bench.stack import ROOT
from deploy.platform import admin
from deploy.platform.openapi import OpenApiClient
from deploy.platform.state import Addresses
from libs.common.contracts.auth import ApplicationSecret, CreateApplication

PASSWORD = "Correct1horse"


@dataclass
class Tenant:
    """A tenant with an application, a user, a flow and devices."""

    name: str
    api: OpenApiClient
    application: Login
    app_token: str
    token: str
    sign_in: str
    hook: str
    flow: str
    devices: list[tuple[int, Login]] = field(default_factory=list)


def command(platform: Platform, *words: str) -> Any:
    """Run a `thingway` command and return its JSON output."""
    program = [str(Path(sys.executable).with_name("thingway")), *words]
    done = subprocess.run(
        [*program, "--data", platform.directory, "--json"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


async def data(answer: aiohttp.ClientResponse) -> Any:
    """Return the data of a successful response; raise `RuntimeError` otherwise."""
    body = await answer.json()
    if not answer.ok or body.get("status") != "Success":
        raise RuntimeError(f"{answer.url}: {answer.status} {body}")
    return body.get("data")


async def create_tenant(
    platform: Platform, stack: AsyncExitStack, name: str, devices: int, *nodes: dict[str, Any]
) -> Tenant:
    """Create a tenant; `nodes` come between the webhook and the end of its flow."""
    made = command(platform, "tenant", "create", name)
    request = CreateApplication(name=name, tenant=name, events=True)
    password = platform.state["secrets"]["nats.admin"]
    addresses = Addresses("", "", platform.nats_url)
    async with admin.connect_rpc(addresses, password) as operator:
        app = await operator.call("rpc.auth.create_application", request, ApplicationSecret)
    login = {"username": f"{name}@example.com", "password": PASSWORD}
    client = {"client_id": made["clientId"], "client_secret": made["clientSecret"]}
    form = {"grant_type": "password", **login, **client}
    base = platform.ready["base_url"]
    async with aiohttp.ClientSession(base) as http:
        person = {"email": login["username"], "nickname": name, "password": PASSWORD}
        async with http.post("/user/register", json=person, headers={"TENANT_ID": name}) as answer:
            await data(answer)
        async with http.post("/oauth2/token", data=form) as answer:
            token = (await data(answer))["access_token"]
        own = {"client_id": app.client_id, "client_secret": app.client_secret}
        own["grant_type"] = "client_credentials"
        async with http.post("/oauth/token", data=own) as answer:
            app_token = (await data(answer))["access_token"]
        hook = uuid4().hex
        body = {"name": name, "enabled": True, "design_data": _design(hook, *nodes)}
        bearer = {"Authorization": f"Bearer {token}"}
        async with http.post("/workflow/flows/design", json=body, headers=bearer) as answer:
            flow = str((await data(answer))["id"])
    api = await stack.enter_async_context(OpenApiClient(base, app.client_id, app.client_secret))
    application = Login(app.client_id, app.client_secret)
    tenant = Tenant(name, api, application, app_token, token, urlencode(form), hook, flow)
    await api.put_product("LIVE", {**PRODUCT, "snPrefixes": []})
    for number in range(devices):
        device_id = await api.ensure_device(f"{name.upper()}{number}", f"Device {number}", "LIVE")
        tenant.devices.append((device_id, Login(*await api.issue_credentials(device_id))))
    return tenant


def _design(hook: str, *nodes: dict[str, Any]) -> str:
    """Return the design of a flow: webhook → nodes → output."""
    found = [
        {"id": "hook", "componentName": "httpIn", "data": {"parameters": {"token": hook}}},
        *nodes,
        {"id": "end", "componentName": "output", "data": {"parameters": {}}},
    ]
    edges = [
        {"source": node["id"], "target": other["id"]} for node, other in itertools.pairwise(found)
    ]
    return json.dumps({"nodes": found, "edges": edges})
