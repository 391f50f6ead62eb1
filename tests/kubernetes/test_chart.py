"""The chart on a real cluster, from nothing to nothing: `make test-kubernetes`.

Each test goes on from where the one before it has left the release.
"""

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import aiomqtt
import pytest

from deploy.platform.services import SERVICES
from tests.e2e.callers import Application
from tests.e2e.journey import browsing, travel
from tests.e2e.platform import MODEL, PRODUCT
from tests.e2e.test_tls import over_websocket, report
from tests.e2e.waiting import until
from tests.faults.load import Load, settled
from tests.integration.workflow.designs import node
from tests.kubernetes.faults import PATIENCE, under_load
from tests.kubernetes.installed import RELEASE, Installed, run

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.slow,
    pytest.mark.xdist_group("kubernetes"),
]

THREES = "--set=mongo.members=3,nats.members=3"
EVERYTHING = "all,ingress,pdb,hpa,networkpolicy,configmap,serviceaccount,role,rolebinding"
TWICE = "--set=defaults.replicas=2"
NATS_STREAMS = (
    "/api/v1/namespaces/{}/pods/thingway-nats-0:8222/proxy/jsz?accounts=true&streams=true"
)
PARTS = (*(service.name for service in SERVICES), "mongo", "nats", "redis")


@pytest.fixture(scope="module", params=["ones", "threes"])
def installed(
    request: pytest.FixtureRequest, image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    """Install a release in a namespace of its own; delete both after the tests.

    With three members it serves TLS.
    """
    many = request.param == "threes"
    directory = tmp_path_factory.mktemp("kubernetes")
    namespace = f"thingway-test-{uuid4().hex[:6]}"
    made = Installed(directory, namespace, image, *((THREES,) if many else ()), tls=many)
    made.stores = request.param
    try:
        made.prepare()
        made.install()
        with made.forwarded():
            yield made
    finally:
        run("kubectl", "delete", "namespace", made.namespace, "--ignore-not-found")


@pytest.fixture
async def application(installed: Installed) -> AsyncIterator[Application]:
    """Return the first application, with the tests' product imported."""
    client = installed.application()
    await client.data("PUT", f"/products/{MODEL}", PRODUCT)
    yield client
    await client.close()


@pytest.fixture
async def before(installed: Installed, application: Application) -> dict[str, int]:
    """Return the counts before the test."""
    device = await application.add_device()
    await device.http("POST", "report", {"properties": {"counter": 0}}, wait="stored")
    return await settled(installed)


def test_helm_test_passes(installed: Installed):
    """It sends a report over MQTT and reads it back over HTTP."""
    assert "sent over MQTT is in the history" in installed.helm("test", RELEASE, "--logs")


def test_the_api_server_takes_every_manifest(installed: Installed):
    """`kubectl apply --dry-run=server` of what helm has installed."""
    manifest = Path(installed.directory) / "manifest.yaml"
    manifest.write_text(installed.helm("get", "manifest", RELEASE))
    installed.kubectl("apply", "--dry-run=server", "-f", str(manifest))


async def test_the_whole_journey(installed: Installed):
    """An existing console makes its calls, from registration to deletion."""
    async with browsing(installed) as browser:
        await travel(browser)


@pytest.mark.parametrize(("language", "code"), [("js", "return a + 1"), ("python", "a + 1")])
async def test_code_of_users_runs(installed: Installed, language: str, code: str):
    """The process restricts itself further than the filter of the container runtime."""
    console = installed.console()
    expression = {"language": language, "expression": code}
    config = node("add", "code", expression=expression, inputArguments={"a": 2})
    body = {"node_config": json.dumps(config), "input": {}}
    traced = await console.data("POST", "/workflow/flows/node/test", body)
    await console.close()
    assert (traced["status"], traced["output"]) == ("SUCCESS", "3")


@pytest.mark.parametrize("part", ["gateway", "device", "auth"])
def test_the_doctor_finds_nothing_bad(installed: Installed, part: str):
    """It runs in a service's container; the warning that no backup exists does not count."""
    words = ("exec", f"deploy/{RELEASE}-{part}", "--", "thingway", "doctor", "--json")
    findings = json.loads(installed.kubectl(*words, check=False))
    assert findings
    assert [finding for finding in findings if not (finding["good"] or finding["minor"])] == []


def test_no_account_with_rights_is_left(installed: Installed):
    """The service accounts of the jobs are deleted with the jobs."""
    ours = ("-l", "app.kubernetes.io/name=thingway")
    assert installed.objects("serviceaccounts,roles,rolebindings", *ours) == []


def test_a_backup_is_made_and_can_be_read(installed: Installed):
    """By the CronJob, on its volume; nobody opens it without the passphrase."""
    assert "the backup holds the secrets" in installed.run_to_end("backup-now")
    read = "thingway restore /backups/thingway/*.backup --dry-run"
    assert " documents" in installed.run_to_end("read-it", "sh", "-c", read)
    verified = installed.run_to_end("verify-now", kind="verify")
    assert "the restored data equal the backup" in verified
    blind = f"unset THINGWAY_BACKUP_PASSPHRASE; ! {read}"
    assert "passphrase" in installed.run_to_end("read-it-blind", "sh", "-c", blind)


async def test_every_door_shows_a_certificate(installed: Installed, application: Application):
    """MQTT over WebSocket and with a certificate of the device; its client verifies."""
    if not installed.tls:
        pytest.skip("the doors are plain")
    device = await application.add_device()
    async with over_websocket(installed, device) as client:
        await report(client, device.sn, 21.5)
    await device.stored({"temperature": 21.5})
    words = ("--", "thingway", "device", "certificate", device.sn, "--out", "-")
    file = Path(installed.directory) / f"{device.sn}.pem"
    file.write_text(installed.kubectl("exec", f"deploy/{RELEASE}-toolbox", *words))
    context = installed.trust
    assert context is not None
    context.load_cert_chain(file)
    door = {"hostname": "127.0.0.1", "port": installed.certificate_port}
    async with aiomqtt.Client(**door, identifier=device.sn, tls_context=context) as client:
        await report(client, device.sn, 22.5)
    await device.stored({"temperature": 22.5})


async def test_a_renewed_certificate_is_loaded_without_restart(
    installed: Installed, application: Application, before
):
    """After a change of the Secret, gateway and nats-server use it and lose no report."""
    if not installed.tls:
        pytest.skip("the doors are plain")
    load = Load(installed, application)
    async with load.running(1):
        new = installed.show_new_certificate()

        async def all_show_it() -> bool:
            ports = (installed.port, installed.mqtt_port)
            return all([await read_certificate(port) == new for port in ports])

        await until(all_show_it, 240)
        await load.goes_on(60)
    await load.check(before)


async def read_certificate(port: int) -> str:
    """Return the certificate that a port presents."""
    return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))


async def test_deleted_pods_lose_nothing(installed: Installed, application: Application, before):
    """Two of every service; one pod of each, and of each store, is deleted in turn."""
    installed.upgrade("first", TWICE)
    for service in SERVICES:
        assert len(installed.pods(service.name)) == 2
    async with under_load(installed, application, before, "a pod of each part deleted") as load:
        for part in PARTS:
            await asyncio.to_thread(installed.delete_pod, installed.pods(part)[0])
            await load.goes_on(PATIENCE)


async def test_pods_deleted_at_random_lose_nothing(
    installed: Installed, application: Application, before
):
    """One pod every five seconds, whether or not the previous one is ready again."""
    chance = random.Random(14)
    async with under_load(installed, application, before, "pods deleted at random, 12 in a minute"):
        for _ in range(12):
            there = [pod for part in PARTS for pod in installed.pods(part)]
            await asyncio.to_thread(installed.delete_pod, chance.choice(there))
            await asyncio.sleep(5)


async def test_a_drained_node_loses_nothing(installed: Installed, application: Application, before):
    """Every pod is evicted at once, as with `kubectl drain`, within the budgets."""
    pods = [pod for part in PARTS for pod in installed.pods(part)]
    async with under_load(installed, application, before, "every pod evicted (a drain)"):
        await asyncio.gather(*(asyncio.to_thread(installed.evict, pod) for pod in pods))


async def test_an_upgrade_and_its_rollback_lose_nothing(
    installed: Installed, application: Application, before
):
    """Roll out another image, then `helm rollback`; the secrets stay."""
    secrets = {part: installed.secret(part, "env") for part in ("auth", "device")}
    async with under_load(installed, application, before, "rollout to another image, and back"):
        await asyncio.to_thread(installed.upgrade, "second", TWICE)
        back = ("rollback", RELEASE, "--wait", "--timeout=10m")
        await asyncio.to_thread(installed.helm, *back)
    assert secrets == {part: installed.secret(part, "env") for part in ("auth", "device")}


def test_the_contract_step_runs_as_a_job(installed: Installed):
    """It finds the stores, and no process of another version."""
    installed.run_to_end("contract", kind="contract")


def test_uninstalled_nothing_is_left_but_data_and_secrets(installed: Installed):
    """And an installation of the same name goes on with them."""
    device = installed.ready.device
    ours = ("-l", "app.kubernetes.io/name=thingway")
    installed.helm("uninstall", RELEASE, "--wait", "--cascade=foreground")
    installed.kubectl("wait", "--for=delete", "pods", *ours, "--timeout=2m")
    assert installed.kubectl("get", EVERYTHING, *ours, "-o", "name") == ""
    installed.install()
    assert installed.ready.device == device
    assert "sent over MQTT is in the history" in installed.helm("test", RELEASE, "--logs")


async def test_a_backup_restores_an_installation_with_more_nats_servers(
    installed: Installed, application: Application
):
    """By the documented steps: delete everything but the backups, restore, start the services."""
    if installed.stores != "ones":
        pytest.skip("the restore is the same, and takes longer")
    device = await application.add_device()
    await device.http("POST", "report", {"properties": {"counter": 7}}, wait="stored")
    await asyncio.to_thread(_replace_installation, installed)
    await device.stored({"counter": 7})
    assert "sent over MQTT is in the history" in installed.helm("test", RELEASE, "--logs")
    streams = json.loads(
        installed.kubectl("get", "--raw", NATS_STREAMS.format(installed.namespace))
    )
    [uplink] = [
        one for one in streams["account_details"][0]["stream_detail"] if one["name"] == "UPLINK"
    ]
    assert len(uplink["cluster"]["replicas"]) == 2


def _replace_installation(installed: Installed) -> None:
    """Back up, delete everything but the backups, and restore with three nats-servers."""
    file = installed.run_to_end("backup-last").strip().splitlines()[-1]
    read = f"thingway restore {file} --only-secrets --data /tmp/s && cat /tmp/s/state.json"
    state = Path(installed.directory) / "state.json"
    log = installed.run_to_end("secrets", "sh", "-c", read)
    said, brace, rest = log.partition("{")  # the command first says which file it reads
    assert brace, said
    state.write_text(brace + rest)
    ours = "app.kubernetes.io/name=thingway,app.kubernetes.io/instance=thingway"
    installed.helm("uninstall", RELEASE, "--wait")
    kept = f"{ours},app.kubernetes.io/component!=backup"
    installed.kubectl("delete", "pvc,secret", "-l", kept)
    secret = f"{RELEASE}-setup"
    installed.kubectl("create", "secret", "generic", secret, f"--from-file={state}")
    installed.kubectl("label", "secret", secret, *ours.split(","))
    where = file.removeprefix("/backups/")
    installed.install("--set=nats.members=3", f"--set=restore.enabled=true,restore.file={where}")
    wait = ("wait", "--for=condition=Complete", f"job/{RELEASE}-restore", "--timeout=10m")
    installed.kubectl(*wait)
    installed.upgrade("first", "--set=nats.members=3")
    installed.wait_ready()
