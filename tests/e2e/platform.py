"""The whole platform as a test meets it: `thingway up` in a process of its own."""

import contextlib
import io
import itertools
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from shutil import rmtree
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from nats.aio.client import Client as NatsClient

from deploy.local.cli import main
from deploy.local.process import PROJECT_ROOT
from deploy.platform import ports, ready
from deploy.platform import state as states
from libs.common.bus import SecureClient
from tests import processor_time
from tests.e2e.callers import Application, Console
from tests.e2e.traces import receiver
from tests.e2e.waiting import PATIENCE, PAUSE, until

MODEL = "E2E-1"
PRODUCT = json.loads(Path(__file__).with_name("product.json").read_text())
THINGWAY = Path(sys.executable).with_name("thingway")
ALLOWED_ORIGIN = "http://console.test"
"""Whose pages may call from a browser."""
START_SECONDS = 300.0
"""Patience with a start: four at once take a minute on two slow processors."""
UP = (str(THINGWAY), "up")
_RUNNING = pytest.StashKey["Platform"]()


def run_command(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a `thingway` command in a thread: a process of its own takes a second to start."""
    out, err, codes = io.StringIO(), io.StringIO(), list[int]()
    thread = threading.Thread(target=lambda: codes.append(main(list(map(str, words)))))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        thread.start()
        thread.join()
    return subprocess.CompletedProcess(words, codes[0], out.getvalue(), err.getvalue())


class Platform:
    """One `thingway up`; with `tls` all of its doors are encrypted, and there are two more."""

    def __init__(
        self,
        directory: Path,
        tree: Path = PROJECT_ROOT,
        *,
        command: Iterable[str] = UP,
        tls: bool = False,
    ) -> None:
        """`command` starts it; a directory, ports and the rest are added."""
        self.directory = directory
        self.tree = tree
        """The checkout whose code runs."""
        self.tls = tls
        self._command = tuple(command)
        self._turns = itertools.count()
        self.port, self.mqtt_port, self.nats_port = (ports.claim_random() for _ in range(3))
        self.websocket_port, self.certificate_port = (ports.claim_random() for _ in range(2))
        self.certificate_nats_port = ports.claim_random()
        self._process: subprocess.Popen[bytes] | None = None
        self._held = False

    @property
    def ready(self) -> ready.ReadyFile:
        """`ready.json` as it is now."""
        found = ready.read(self.directory)
        assert found is not None, "the platform is not ready"
        return found

    @property
    def state(self) -> states.State:
        """`state.json` as it is now."""
        return states.load(self.directory)

    @property
    def base_url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def trust(self) -> ssl.SSLContext | None:
        """Return an SSL context that trusts only the platform's own authority."""
        return ssl.create_default_context(cafile=self.ready.ca_file) if self.tls else None

    def session(self, **options: Any) -> aiohttp.ClientSession:
        """Return a client of the gateway."""
        connector = aiohttp.TCPConnector(ssl=self.trust or True)
        return aiohttp.ClientSession(self.base_url, connector=connector, **options)

    @property
    def addresses(self) -> states.Addresses:
        """Return the addresses of the platform."""
        found = self.state.addresses
        assert found is not None
        return found

    def nats_door(self) -> str:
        """Return the NATS address; it changes to the next server with each call."""
        return self._in_turn(self.addresses.nats_url)

    def mqtt_door(self) -> tuple[str, int]:
        """Host and port of where to connect over MQTT: of the next server in turn."""
        parts = urlsplit(self._in_turn(self.addresses.mqtt_url))
        return parts.hostname or "", parts.port or 0

    def _in_turn(self, urls: str) -> str:
        found = urls.split(",")
        return found[next(self._turns) % len(found)]

    def start(self) -> None:
        """Start it and wait until it is ready."""
        log = (self.directory.parent / f"{self.directory.name}.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [
                    *(*self._started_by, "--no-simulator", "--data", self.directory),
                    *("--port", str(self.port)),
                    *("--mqtt-port", str(self.mqtt_port), "--nats-port", str(self.nats_port)),
                    *(self._tls_options() if self.tls else ()),
                ],
                cwd=self.tree,
                env=os.environ
                | {
                    "THINGWAY_END_WITH_PARENT": "1",
                    "THINGWAY_OUTGOING_NETWORKS": "127.0.0.0/8",
                    "THINGWAY_ALLOWED_ORIGINS": ALLOWED_ORIGIN,
                }
                | receiver().environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        while ready.read(self.directory) is None:
            late = time.monotonic() > deadline
            if late or self._process.poll() is not None:
                self.stop()
                raise RuntimeError(
                    f"`thingway up` did not become ready:\n{Path(log.name).read_text()}"
                )
            time.sleep(PAUSE)

    def _tls_options(self) -> list[str]:
        doors = ["--websocket-port", str(self.websocket_port)]
        doors += ["--certificate-port", str(self.certificate_port)]
        return ["--tls", *doors, "--certificate-nats-port", str(self.certificate_nats_port)]

    @property
    def _started_by(self) -> tuple[str, ...]:
        """Return the command; for another checkout, one that runs that checkout's code."""
        if self.tree == PROJECT_ROOT:
            return self._command
        code = "from deploy.local.cli import main; raise SystemExit(main())"
        return (sys.executable, "-c", code, "up")

    def hold(self, *, needed: bool) -> None:
        """Pause its processes while no test needs it, so that they use no processor time."""
        running = ready.read(self.directory)
        if needed is not self._held or self._process is None or running is None:
            return
        self._held = not needed
        pids = [*running.pids.values(), self._process.pid]
        for pid in alive(pids if needed else reversed(pids)):
            os.kill(pid, signal.SIGCONT if needed else signal.SIGSTOP)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """End it as Ctrl-C does; return its exit code."""
        self.hold(needed=True)
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def end(self) -> None:
        """Kill all its processes at once with `kill -9`."""
        running = ready.read(self.directory)
        if self._process is not None:
            processor_time.note(self._process.pid)
            self._process.kill()
            self._process.wait()
        for pid in alive(running.pids.values() if running else ()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def die(self) -> None:
        """`kill -9` the launcher, and wait until its children have followed it."""
        pids = list(self.ready.pids.values())
        process, self._process = self._process, None
        assert process is not None
        processor_time.note(process.pid)
        process.kill()
        process.wait()

        async def all_gone() -> bool:
            return not alive(pids)

        await until(all_gone)
        ready.remove(self.directory)

    def command(self, *words: str) -> Any:
        """Run a `thingway` command on this platform; return the JSON that it prints."""
        done = run_command(*words, "--data", self.directory, "--json")
        done.check_returncode()
        return json.loads(done.stdout)

    async def kill(self, name: str) -> int:
        """`kill -9` a child; return its process id."""
        pid = await self._pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    async def restarted(self, name: str, old: int, seconds: float = 30.0) -> None:
        """Wait until the launcher has started a killed child again, and it serves."""

        async def new() -> bool:
            pids = self.ready.pids
            return name in pids and pids[name] != old

        await until(new, seconds)
        if name in {"device", "device-ingest", "auth"}:
            address = f"http://127.0.0.1:{self.state.ports[name]}/readyz"
            await until(lambda: _answers(address), seconds)

    async def _pid(self, name: str) -> int:
        async def running() -> int | None:
            return self.ready.pids.get(name)

        return await until(running, 30) or 0

    async def metrics(self) -> dict[str, int]:
        """Return the counts of `device-ingest`: accepted, stored, rejected, waiting."""
        address = f"http://127.0.0.1:{self.state.ports['device-ingest']}/metrics"
        async with aiohttp.ClientSession() as session, session.get(address) as answer:
            return uplink_counts(await answer.text())

    @contextlib.asynccontextmanager
    async def admin(self) -> AsyncIterator[NatsClient]:
        """Open a NATS client that may read everything, also `DEAD`."""
        client = SecureClient()
        await client.connect(
            self.addresses.nats_url.split(","),
            tls=self.trust,
            user="admin",
            password=self.state.secrets["nats.admin"],
        )
        try:
            yield client
        finally:
            await client.close()

    async def ask(self, subject: str, body: Any) -> Any:
        """Call a service as the operator; return its answer."""
        async with self.admin() as client:
            answer = await client.request(subject, json.dumps(body).encode(), timeout=PATIENCE)
        assert "Nats-Service-Error" not in (answer.headers or {}), answer.headers
        return json.loads(answer.data)

    async def make_application(
        self, name: str, tenant: str = "default", *, events: bool = False
    ) -> Any:
        """Create an application as `thingway app create` does, without a new process."""
        wanted = {"name": name, "tenant": tenant, "events": events}
        return await self.ask("rpc.auth.create_application", wanted)

    async def rotate_secret(self, application_id: int) -> Any:
        """Change the secret as `thingway app rotate-secret` does."""
        return await self.ask(
            "rpc.auth.rotate_application_secret", {"applicationId": application_id}
        )

    async def delete_application(self, application_id: int) -> None:
        """Delete an application as `thingway app delete` does."""
        await self.ask("rpc.auth.delete_application", {"applicationId": application_id})

    def application(self, client_id: str = "", client_secret: str = "") -> Application:
        """Return a client of the API; by default of the first application."""
        first = self.ready.application
        return Application(self, client_id or first.client_id, client_secret or first.client_secret)

    def console(self, email: str = "", password: str = "", tenant: str = "") -> Console:
        """Return a client of the management API; by default of the first super-admin."""
        first = self.ready.user
        return Console(self, email or first.email, password or first.password, tenant)


def uplink_counts(exposition: str) -> dict[str, int]:
    """Return the counts in `/metrics`: accepted, stored, rejected, waiting; 0 before a reading."""
    found = dict.fromkeys(("accepted", "stored", "rejected", "waiting"), 0)
    for line in exposition.splitlines():
        name, _, value = line.rpartition(" ")
        name = name.partition("{")[0]
        if name.startswith("thingway_uplink_"):
            short = name.removeprefix("thingway_uplink_").removesuffix("_total")
            found[short] = int(float(value))
    return found


async def _answers(address: str) -> bool:
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        timeout = aiohttp.ClientTimeout(total=3)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(address) as answer,
        ):
            return answer.status == 200
    return False


def shared(session: pytest.Session) -> Platform:
    """Return the platform of this pytest process; start it on the first call.

    Its data is deleted at the end, and its logs too unless a test has failed.
    """
    config = session.config
    found = config.stash.get(_RUNNING, None)
    if found is None:
        root = Path(tempfile.mkdtemp(prefix="thingway-e2e-"))
        cluster = ("--cluster",) if config.getoption("--cluster") else ()
        found = Platform(root / "data", command=(*UP, *cluster))
        config.add_cleanup(lambda: _clear(root, keep_logs=session.testsfailed > 0))
        found.start()
        config.add_cleanup(found.end)
        config.pluginmanager.register(_Pause(found))
        config.stash[_RUNNING] = found
    return found


class _Pause:
    """Pauses the platform during tests that do not need it."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    def pytest_runtest_setup(self, item: pytest.Function) -> None:
        self._platform.hold(needed="platform" in item.fixturenames)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        """Keep the platform running while shared fixtures close."""
        if nextitem is None:
            self._platform.hold(needed=True)


def _clear(root: Path, *, keep_logs: bool) -> None:
    if keep_logs:
        kept = Path(tempfile.mkdtemp(prefix="thingway-logs-"))
        for log in (*root.glob("*.log"), *root.glob("data/logs/*")):
            log.rename(kept / log.name)
        print(f"the logs of the platform: {kept}", file=sys.__stderr__)
    rmtree(root, ignore_errors=True)


def alive(pids: Iterable[int]) -> list[int]:
    """Return those of `pids` that are running processes; zombies are not."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z":
                found.append(pid)
    return found
