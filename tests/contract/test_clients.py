"""Clients that are generated from the document: without a warning, and they work."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from tests.contract.client import Api, new_sn
from tests.contract.console import Console
from tests.e2e.platform import Platform
from tests.node import PACKAGES, node

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("contract")]

MADE = "thingway_generated"
"""The package that is generated."""
JOURNEY = {
    "device": {
        "values": [{"temperature": 21.5}],
        "status": "SUCCESS",
        "refusal": "device_not_found",
    },
    "console": True,
}
"""What each client finds on its journey."""


@pytest.fixture(scope="module")
def document(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The document in a file."""
    path = tmp_path_factory.mktemp("clients") / "openapi.json"
    path.write_bytes(httpx.get(f"{platform.base_url}/openapi.json").raise_for_status().content)
    return path


class Generated:
    """The Python client: its operations by tag and id, and its models."""

    def __init__(self, directory: Path) -> None:
        sys.path.insert(0, str(directory))
        self.client = importlib.import_module(f"{MADE}.client")
        self.models = importlib.import_module(f"{MADE}.models")

    @staticmethod
    def operation(tag: str, name: str) -> ModuleType:
        return importlib.import_module(f"{MADE}.api.{tag}.{name}")


@pytest.fixture(scope="module")
def generated(document: Path) -> Generated:
    """The client that `openapi-python-client` makes, which has nothing to complain about."""
    made = document.parent / "python"
    made.mkdir()
    programs = Path(sys.executable).parent
    done = subprocess.run(
        [
            *(programs / "openapi-python-client", "generate", "--path", document),
            *("--meta", "none", "--output-path", made / MADE, "--fail-on-warning"),
        ],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, "arning" in done.stdout + done.stderr) == (0, False), done.stdout
    return Generated(made)


def test_python_client(generated: Generated, platform: Platform, api: Api, admin: Console) -> None:
    """It adds a device, lets it report and answer, reads it all, and makes a dashboard."""
    url, models, sn = platform.base_url, generated.models, new_sn()
    clients = generated.client

    def call(client: Any, tag: str, name: str, *path: Any, **more: Any) -> Any:
        operation = generated.operation(tag, name)
        return operation.sync_detailed(*path, client=client, **more)

    anonymous = clients.Client(base_url=url)
    credentials = {"client_id": api.client_id, "client_secret": api.client_secret}
    grant = models.ClientCredentialsGrant.from_dict(
        {"grant_type": "client_credentials"} | credentials
    )
    token = call(anonymous, "device_api_authentication", "issue_token", body=grant)
    app = clients.AuthenticatedClient(base_url=url, token=token.parsed.data.access_token)
    devices = "device_api_devices"
    body = models.AddDevice(sn_dev_eui=sn, name="Generated")
    device = call(app, devices, "add_device", body=body).parsed.data.device_id
    key = call(app, devices, "issue_credentials", device).parsed.data.key
    edge = clients.Client(base_url=url, httpx_args={"auth": (sn, key)})
    report = models.ReportMessage.from_dict({"properties": {"temperature": 21.5}})
    call(edge, "device_api_device_edge", "report_properties", sn, body=report, wait="stored")
    history = call(app, devices, "get_property_history", device, page_size=5).parsed.data
    led = models.UpdateProperties.from_dict({"properties": {"led": True}})
    told = call(app, devices, "update_device_properties", device, body=led)
    task = int(told.headers["location"].rpartition("/")[2])
    answer = models.ReplyMessage.from_dict({"commandId": task, "status": "SUCCESS"})
    call(edge, "device_api_device_edge", "answer_command", sn, body=answer, wait="stored")
    found = {
        "values": [record.properties.to_dict() for record in history.list_],
        "status": str(call(app, "device_api_tasks", "get_task", task).parsed.data.status),
        "refusal": call(app, devices, "get_device", 1).parsed.err_code,
    }
    call(app, devices, "delete_device", device)

    grant = models.PasswordGrant.from_dict(
        {
            "grant_type": "password",
            "username": admin.email,
            "password": admin.password,
            "client_id": admin.client_id,
            "client_secret": admin.client_secret,
        }
    )
    tag = "management_api_authentication_and_current_user"
    token = call(anonymous, tag, "sign_in", body=grant).parsed.access_token
    person = clients.AuthenticatedClient(base_url=url, token=token)
    tag, body = "management_api_dashboards", models.CreateDashboard(name=sn)
    made = call(person, tag, "create_dashboard", body=body).parsed.data.dashboard_id
    listed = call(person, tag, "list_dashboards").parsed.data
    call(person, tag, "delete_dashboard", int(made))
    assert {"device": found, "console": sn in {one.name for one in listed}} == JOURNEY


def test_typescript_client(document: Path, platform: Platform, api: Api, admin: Console) -> None:
    """The same with the client of `@hey-api/openapi-ts`, whose types hold."""
    made = document.parent / "typescript"
    made.mkdir()
    assert "arn" not in node("generate.mjs", document, made / "api")
    (made / "package.json").write_text('{"type": "module"}')
    journey = made / "journey.ts"
    journey.write_text((PACKAGES / "journey.ts").read_text())
    node(
        *("node_modules/typescript/bin/tsc", "--noEmit", "--strict", "--skipLibCheck"),
        *("--noUncheckedIndexedAccess", "--allowImportingTsExtensions", "--target", "es2022"),
        *("--module", "nodenext", "--lib", "es2022,dom,dom.iterable", journey),
    )
    given = {
        "baseUrl": platform.base_url,
        "clientId": api.client_id,
        "clientSecret": api.client_secret,
        "sn": new_sn(),
        "email": admin.email,
        "password": admin.password,
        "consoleId": admin.client_id,
        "consoleSecret": admin.client_secret,
    }
    assert json.loads(node(journey, json.dumps(given))) == JOURNEY
