"""A release of the chart, as tests meet it: by kubectl, helm, and forwarded ports."""

import asyncio
import base64
import contextlib
import json
import os
import ssl
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import msgspec

from deploy.platform import ready
from deploy.platform import state as states
from deploy.platform.certificates import CertificateAuthority, create_authority_pem
from deploy.platform.openapi import wait_until_ready
from deploy.platform.state import Addresses
from tests.e2e.platform import Platform, uplink_counts
from tests.e2e.waiting import PATIENCE, PAUSE, until

CHART = Path(__file__).parents[2] / "deploy/helm/thingway"
RELAY = Path(__file__).with_name("relay.py")
RELEASE = "thingway"
MINUTES = "10m"


def run(*words: str, check: bool = True) -> str:
    """Run a command and return its output."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


class Installed(Platform):
    """One release in a namespace of its own."""

    def __init__(
        self, directory: Path, namespace: str, image: str, *values: str, tls: bool = False
    ) -> None:
        """`values` are options of helm that hold for as long as it is there."""
        super().__init__(directory, tls=tls)
        self.namespace = namespace
        self.stores = ""
        """What kind of installation it is, for tables."""
        self._image = image
        self._values = values
        self._authority = CertificateAuthority(create_authority_pem("tests"))
        (directory / "ca.crt").write_text(self._authority.certificate)

    def kubectl(self, *words: str, check: bool = True) -> str:
        return run("kubectl", "-n", self.namespace, *words, check=check)

    def helm(self, *words: str) -> str:
        return run("helm", "-n", self.namespace, *words)

    def prepare(self) -> None:
        """Create the namespace and the operator's Secrets."""
        run("kubectl", "create", "namespace", self.namespace)
        passphrase = f"--from-literal=passphrase={token_urlsafe()}"
        self.kubectl("create", "secret", "generic", "backups", passphrase)
        if self.tls:
            self.show_new_certificate()

    def show_new_certificate(self) -> str:
        """Make a certificate for the doors, as cert-manager would; return it."""
        names = ["127.0.0.1", f"{RELEASE}-gateway", f"{RELEASE}-nats"]
        certificate, key = self._authority.issue_server_certificate(names)
        (self.directory / "tls.crt").write_text(certificate)
        (self.directory / "tls.key").write_text(key)
        files = [f"--from-file={self.directory / one}" for one in ("tls.crt", "tls.key", "ca.crt")]
        made = ("create", "secret", "generic", "doors", "--type=kubernetes.io/tls", *files)
        manifest = self.directory / "doors.json"
        manifest.write_text(self.kubectl(*made, "--dry-run=client", "-o", "json"))
        self.kubectl("apply", "-f", str(manifest))
        return certificate

    @property
    def trust(self) -> ssl.SSLContext | None:
        """Return an SSL context that trusts only the issuer of the ingress certificate."""
        if not self.tls:
            return None
        return ssl.create_default_context(cafile=self.directory / "ca.crt")

    def install(self, *options: str) -> None:
        """Install the chart as documented; without options, wait until everything is ready."""
        self._helm_with_values("install", *options, tag="first")
        if not options:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the toolbox has the first credentials."""
        there = "until [ -e /data/ready.json ]; do sleep 1; done"
        self.kubectl("exec", f"deploy/{RELEASE}-toolbox", "--", "sh", "-c", there)

    def upgrade(self, tag: str, *options: str) -> None:
        """Go to another image, or to other values, and wait until every pod has."""
        self._helm_with_values("upgrade", *options, tag=tag)

    def _helm_with_values(self, verb: str, *options: str, tag: str) -> None:
        given = os.environ.get("THINGWAY_KUBERNETES_VALUES")
        self.helm(
            verb,
            RELEASE,
            str(CHART),
            *(("--values", given) if given else ()),
            f"--set=image.repository={self._image},image.tag={tag},simulator.enabled=false",
            f"--set=public.url={self.base_url}",
            f"--set=public.mqttUrl={self.addresses.mqtt_url}",
            f"--set=public.natsUrl={self.addresses.nats_url}",
            "--set=backup.enabled=true,backup.passphrase.secret=backups,backup.verify.enabled=true",
            *(("--set=tls.enabled=true,tls.secret=doors",) if self.tls else ()),
            *self._values,
            *options,
            "--wait",
            f"--timeout={MINUTES}",
        )

    def objects(self, kinds: str, *selector: str) -> list[dict[str, Any]]:
        """Objects of the release's namespace."""
        listed = json.loads(self.kubectl("get", kinds, "-o", "json", *selector))
        return list(listed["items"])

    def pods(self, part: str) -> list[str]:
        """Return the names of the running pods of a component."""
        found = self.objects("pods", "-l", f"app.kubernetes.io/component={part}")
        return [
            entry["metadata"]["name"]
            for entry in found
            if entry["status"]["phase"] == "Running"
            and "deletionTimestamp" not in entry["metadata"]
        ]

    def delete_pod(self, name: str) -> None:
        """Delete a pod; return when the deletion has started."""
        self.kubectl("delete", "pod", name, "--wait=false")

    def evict(self, name: str) -> None:
        """Evict a pod; return when budgets have let it."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": self.namespace},
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/eviction"
        words = ("kubectl", "create", "--raw", path, "-f", "-")
        while True:
            done = subprocess.run(
                words, input=json.dumps(body), capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                return
            assert "disruption budget" in done.stderr, done.stderr
            time.sleep(1)

    async def settled(self) -> None:
        """Wait until every part has its pods, of the newest kind, and all is ready."""
        for one in self.objects("deployments,statefulsets"):
            name = f"{one['kind'].lower()}/{one['metadata']['name']}"
            await asyncio.to_thread(self.kubectl, "rollout", "status", name, f"--timeout={MINUTES}")

        async def nobody_leaves() -> bool:
            return not any("deletionTimestamp" in one["metadata"] for one in self.objects("pods"))

        await until(nobody_leaves, 120)
        async with asyncio.timeout(120):
            await wait_until_ready(
                self.base_url, str(self.directory / "ca.crt") if self.tls else ""
            )

    def secret(self, part: str, key: str) -> bytes:
        """Return a value from a Secret of the release."""
        [found] = self.objects("secrets", f"--field-selector=metadata.name={RELEASE}-{part}")
        return base64.b64decode(found["data"][key])

    @property
    def ready(self) -> ready.ReadyFile:
        return msgspec.json.decode(
            self.secret("credentials", ready.FILE_NAME), type=ready.ReadyFile
        )

    @property
    def state(self) -> states.State:
        return msgspec.json.decode(self.secret("bootstrap", states.FILE_NAME), type=states.State)

    @property
    def addresses(self) -> Addresses:
        """Return the forwarded ports."""
        mqtt, nats = ("mqtts", "tls") if self.tls else ("mqtt", "nats")
        return Addresses(
            base_url=self.base_url,
            mqtt_url=f"{mqtt}://127.0.0.1:{self.mqtt_port}",
            nats_url=f"{nats}://127.0.0.1:{self.nats_port}",
        )

    def command(self, *words: str) -> Any:
        """Run a `thingway` command in the toolbox; return the JSON that it prints."""
        toolbox = f"deploy/{RELEASE}-toolbox"
        return json.loads(self.kubectl("exec", toolbox, "--", "thingway", *words, "--json"))

    async def metrics(self) -> dict[str, int]:
        """Return the newest totals of any pod; `readings` are those of the pod with the fewest.

        Each pod reads the shared totals every few seconds and counts its own readings.
        """
        paths = [
            f"/api/v1/namespaces/{self.namespace}/pods/{pod}:8000/proxy/metrics"
            for pod in self.pods("device-ingest")
        ]
        texts = [self.kubectl("get", "--raw", path, check=False) for path in paths]
        pods = [uplink_counts(text) for text in texts or [""]]
        newest = {name: max(pod.get(name, 0) for pod in pods) for name in pods[0]}
        if all("readings" in pod for pod in pods):
            newest["readings"] = min(pod["readings"] for pod in pods)
        return newest

    def run_to_end(self, job: str, *command: str, kind: str = "backup") -> str:
        """Run a job of this kind, with another script if one is given; return its log."""
        words = ("create", "job", job, f"--from=cronjob/{RELEASE}-{kind}")
        made = json.loads(self.kubectl(*words, "--dry-run=client", "-o", "json"))
        if command:
            [container] = made["spec"]["template"]["spec"]["containers"]
            container |= {"command": list(command), "args": []}
        manifest = self.directory / f"{job}.json"
        manifest.write_text(json.dumps(made))
        self.kubectl("create", "-f", str(manifest))
        self.kubectl("wait", "--for=condition=Complete", f"job/{job}", "--timeout=3m")
        log = self._whole_log(f"job/{job}")
        self.kubectl("delete", "job", job)
        return log

    def _whole_log(self, name: str) -> str:
        """Read a log until it stays: its end may come after the end of the container."""
        log, before = self.kubectl("logs", name, "--all-containers"), ""
        while not log or log != before:
            time.sleep(1)
            log, before = self.kubectl("logs", name, "--all-containers"), log
        return log

    @contextlib.contextmanager
    def forwarded(self) -> Iterator[None]:
        """Forward its doors to this machine, by way of a pod that stays."""
        gateway, nats = f"{RELEASE}-gateway", f"{RELEASE}-nats"
        http, mqtt, websocket = (443, 8883, 8084) if self.tls else (80, 1883, 8083)
        doors = {
            self.port: (8080, f"{gateway}:{http}"),
            self.mqtt_port: (1883, f"{nats}:{mqtt}"),
            self.nats_port: (4222, f"{nats}:4222"),
            self.websocket_port: (8083, f"{nats}:{websocket}"),
        }
        if self.tls:
            doors[self.certificate_port] = (8884, f"{gateway}:8884")
            doors[self.certificate_nats_port] = (4223, f"{gateway}:4223")
        relay = ("python", "-c", RELAY.read_text())
        words = [f"{port}:{service}" for port, service in doors.values()]
        image = f"--image={self._image}:first"
        self.kubectl("run", "relay", image, "--restart=Never", "--command", "--", *relay, *words)
        self.kubectl("wait", "--for=condition=Ready", "pod/relay", "--timeout=2m")
        # A connection that the pod refuses ends `kubectl port-forward`.
        listening = "until [ -e /tmp/listening ]; do sleep 0.2; done"
        self.kubectl("exec", "relay", "--", "sh", "-c", listening)
        ports = [f"{here}:{port}" for here, (port, _) in doors.items()]
        words = ["kubectl", "-n", self.namespace, "port-forward", "pod/relay", *ports]
        over = threading.Event()
        log = self.directory / "port-forward.log"
        log.touch()
        forwarding = threading.Thread(target=_keep_running, args=(words, log, over))
        forwarding.start()
        try:
            _wait_for_ports(log, doors)
            yield
        finally:
            over.set()
            forwarding.join()


def _wait_for_ports(log: Path, ports: Iterable[int]) -> None:
    """Wait until kubectl writes that it forwards each port."""
    deadline = time.monotonic() + PATIENCE
    while not all(f"from 127.0.0.1:{port} " in log.read_text() for port in ports):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(PAUSE)


def _keep_running(words: list[str], log: Path, over: threading.Event) -> None:
    """Run a command, again when it ends, until it is `over`; its output goes to `log`."""
    while not over.is_set():
        with (
            log.open("a") as output,
            subprocess.Popen(words, stdout=output, stderr=output) as process,
        ):
            while process.poll() is None and not over.wait(0.2):
                pass
            process.kill()
