"""The chart on a real cluster, from nothing to nothing: `make test-kubernetes`.

Each test goes on from where the one before it has left the release.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from deploy.platform.services import SERVICES
from tests.e2e.callers import Application
from tests.e2e.journey import browsing, travel
from tests.e2e.platform import MODEL, PRODUCT
from tests.faults.load import Load, settled
from tests.integration.workflow.designs import node
from tests.kubernetes.installed import RELEASE, Installed, run

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.slow,
    pytest.mark.xdist_group("kubernetes"),
]

THREES = "--set=mongo.members=3"
EVERYTHING = "all,ingress,pdb,hpa,networkpolicy,configmap,serviceaccount,role,rolebinding"
STORES = ("mongo", "nats", "redis")


@pytest.fixture(scope="module", params=["ones", "threes"])
def installed(
    request: pytest.FixtureRequest, image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """A release in an empty namespace, which goes with it."""
    options = (THREES,) if request.param == "threes" else ()
    directory = tmp_path_factory.mktemp("kubernetes")
    made = Installed(directory, f"thingway-test-{uuid4().hex[:6]}", image, *options)
    try:
        made.install()
        with made.forwarded():
            yield made
    finally:
        run("kubectl", "delete", "namespace", made.namespace, "--ignore-not-found")


@pytest.fixture
async def application(installed: Installed) -> AsyncIterator[Application]:
    """The first application, with the tests' product imported."""
    client = installed.application()
    await client.data("PUT", f"/products/{MODEL}", PRODUCT)
    yield client
    await client.close()


@pytest.fixture
async def before(installed: Installed, application: Application) -> dict[str, int]:
    """The counts before the test."""
    device = await application.add_device()
    await device.http("POST", "report", {"properties": {"counter": 0}}, wait="stored")
    return await settled(installed)


def test_helm_test_passes(installed: Installed):
    """A report goes in over MQTT and is read back over HTTP."""
    assert "read back over HTTP" in installed.helm("test", RELEASE, "--logs")


def test_the_api_server_takes_every_manifest(installed: Installed):
    """`kubectl apply --dry-run=server` of what helm has installed."""
    manifest = Path(installed.directory) / "manifest.yaml"
    manifest.write_text(installed.helm("get", "manifest", RELEASE))
    installed.kubectl("apply", "--dry-run=server", "-f", str(manifest))


async def test_the_whole_journey(installed: Installed):
    """An existing console's order of calls, from the first registration to the last deletion."""
    async with browsing(installed) as browser:
        await travel(browser)


@pytest.mark.parametrize(("language", "code"), [("js", "return a + 1"), ("python", "a + 1")])
async def test_code_of_people_runs(installed: Installed, language: str, code: str):
    """Its process confines itself further than the runtime's own filter does."""
    console = installed.console()
    expression = {"language": language, "expression": code}
    config = node("add", "code", expression=expression, inputArguments={"a": 2})
    body = {"node_config": json.dumps(config), "input": {}}
    traced = await console.data("POST", "/workflow/flows/node/test", body)
    await console.close()
    assert (traced["status"], traced["output"]) == ("SUCCESS", "3")


def test_no_account_with_rights_is_left(installed: Installed):
    """Those of the jobs go with the jobs."""
    ours = ("-l", "app.kubernetes.io/name=thingway")
    assert installed.objects("serviceaccounts,roles,rolebindings", *ours) == []


async def test_deleted_pods_lose_nothing(installed: Installed, application: Application, before):
    """Two of every service; one pod of each, and of each store, is deleted under load."""
    installed.upgrade("first", "--set=defaults.replicas=2")
    for service in SERVICES:
        assert len(installed.pods(service.name)) == 2
    load = Load(installed, application)
    async with load.running(2):
        for part in (*(service.name for service in SERVICES), *STORES):
            installed.kubectl("delete", "pod", installed.pods(part)[0], "--wait=false")
            await load.goes_on(180)
    await installed.settled()
    await load.check(before)


async def test_an_upgrade_and_the_way_back_lose_nothing(
    installed: Installed, application: Application, before
):
    """A rollout to another image and `helm rollback` under load."""
    secrets = {part: installed.secret(part, "env") for part in ("auth", "device")}
    load = Load(installed, application)
    async with load.running(2):
        await asyncio.to_thread(installed.upgrade, "second", "--set=defaults.replicas=2")
        await load.goes_on(180)
        await asyncio.to_thread(installed.helm, "rollback", RELEASE, "--wait", "--timeout=10m")
        await load.goes_on(180)
    await installed.settled()
    await load.check(before)
    assert secrets == {part: installed.secret(part, "env") for part in ("auth", "device")}


def test_uninstalled_nothing_is_left_but_data_and_secrets(installed: Installed):
    """And an installation of the same name goes on with them."""
    device = installed.ready.device
    ours = ("-l", "app.kubernetes.io/name=thingway")
    installed.helm("uninstall", RELEASE, "--wait", "--cascade=foreground")
    installed.kubectl("wait", "--for=delete", "pods", *ours, "--timeout=2m")
    assert installed.kubectl("get", EVERYTHING, *ours, "-o", "name") == ""
    installed.install()
    assert installed.ready.device == device
    assert "read back over HTTP" in installed.helm("test", RELEASE, "--logs")
