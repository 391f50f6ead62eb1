"""A release of the chart, as tests meet it: by kubectl, helm, and forwarded ports."""

import asyncio
import base64
import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from deploy.platform import ready
from deploy.platform import state as states
from deploy.platform.serving import until_serving
from deploy.platform.state import Addresses
from tests.e2e.platform import Platform, uplink_counts
from tests.e2e.waiting import until

CHART = Path(__file__).parents[2] / "deploy/helm/thingway"
RELAY = Path(__file__).with_name("relay.py")
RELEASE = "thingway"
MINUTES = "10m"


def run(*words: str, check: bool = True) -> str:
    """Run a command; return what it prints."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


class Installed(Platform):
    """One release in a namespace of its own."""

    def __init__(self, directory: Path, namespace: str, image: str, *values: str) -> None:
        """`values` are options of helm that hold for as long as it is there."""
        super().__init__(directory)
        self.namespace = namespace
        self._image = image
        self._values = values

    def kubectl(self, *words: str, check: bool = True) -> str:
        return run("kubectl", "-n", self.namespace, *words, check=check)

    def helm(self, *words: str) -> str:
        return run("helm", "-n", self.namespace, *words)

    def install(self) -> None:
        """Install it as documented, and wait for all of it."""
        self._helm_with_values("install", "--create-namespace", tag="first")
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
            f"--set=public.mqttUrl=mqtt://127.0.0.1:{self.mqtt_port}",
            f"--set=public.natsUrl=nats://127.0.0.1:{self.nats_port}",
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
        """The names of a part's pods that run."""
        found = self.objects("pods", "-l", f"app.kubernetes.io/component={part}")
        return [
            one["metadata"]["name"]
            for one in found
            if one["status"]["phase"] == "Running" and "deletionTimestamp" not in one["metadata"]
        ]

    async def settled(self) -> None:
        """Wait until every part has its pods, of the newest kind, and all is ready."""
        for one in self.objects("deployments,statefulsets"):
            name = f"{one['kind'].lower()}/{one['metadata']['name']}"
            await asyncio.to_thread(self.kubectl, "rollout", "status", name, f"--timeout={MINUTES}")

        async def nobody_leaves() -> bool:
            return not any("deletionTimestamp" in one["metadata"] for one in self.objects("pods"))

        await until(nobody_leaves, 120)
        async with asyncio.timeout(120):
            await until_serving(self.base_url)

    def secret(self, part: str, key: str) -> bytes:
        """What a Secret of the release holds."""
        [found] = self.objects("secrets", f"--field-selector=metadata.name={RELEASE}-{part}")
        return base64.b64decode(found["data"][key])

    @property
    def ready(self) -> ready.Ready:
        return msgspec.json.decode(self.secret("credentials", ready.FILE_NAME), type=ready.Ready)

    @property
    def state(self) -> states.State:
        return msgspec.json.decode(self.secret("bootstrap", states.FILE_NAME), type=states.State)

    @property
    def addresses(self) -> Addresses:
        """The forwarded ports."""
        host = "127.0.0.1"
        return Addresses(
            self.base_url, f"mqtt://{host}:{self.mqtt_port}", f"nats://{host}:{self.nats_port}"
        )

    def command(self, *words: str) -> Any:
        """Run a `thingway` command in the toolbox; return the JSON that it prints."""
        toolbox = f"deploy/{RELEASE}-toolbox"
        return json.loads(self.kubectl("exec", toolbox, "--", "thingway", *words, "--json"))

    async def metrics(self) -> dict[str, int]:
        path = f"/api/v1/namespaces/{self.namespace}/services/{RELEASE}-device-ingest:http/proxy"
        return uplink_counts(self.kubectl("get", "--raw", f"{path}/metrics", check=False))

    @contextlib.contextmanager
    def forwarded(self) -> Iterator[None]:
        """Forward its three doors to this machine, by way of a pod that stays."""
        doors = {
            8080: f"{RELEASE}-gateway:80",
            1883: f"{RELEASE}-nats:1883",
            4222: f"{RELEASE}-nats:4222",
        }
        here = {8080: self.port, 1883: self.mqtt_port, 4222: self.nats_port}
        relay = ("python", "-c", RELAY.read_text())
        words = [f"{port}:{service}" for port, service in doors.items()]
        image = f"--image={self._image}:first"
        self.kubectl("run", "relay", image, "--restart=Never", "--command", "--", *relay, *words)
        self.kubectl("wait", "--for=condition=Ready", "pod/relay", "--timeout=2m")
        ports = [f"{here[port]}:{port}" for port in doors]
        words = ["kubectl", "-n", self.namespace, "port-forward", "pod/relay", *ports]
        over = threading.Event()
        forwarding = threading.Thread(target=_keep_running, args=(words, over))
        forwarding.start()
        try:
            yield
        finally:
            over.set()
            forwarding.join()


def _keep_running(words: list[str], over: threading.Event) -> None:
    """Run a command, again when it ends, until it is `over`."""
    while not over.is_set():
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and not over.wait(0.2):
                pass
            process.kill()
