"""The whole platform as a test meets it: `thingway up` in a process of its own, and its clients."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
import aiomqtt
import nats
import pytest
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from deploy.local import ports, ready
from deploy.local import state as states
from deploy.local.process import PROJECT_ROOT

API = "/device/openapi/v1"
MODEL = "E2E-1"
PRODUCT = json.loads(Path(__file__).with_name("product.json").read_text())
THINGWAY = Path(sys.executable).with_name("thingway")
START_SECONDS = 60.0
PATIENCE = 30.0
"""Seconds that a test waits for what takes milliseconds on an idle machine."""
_PAUSE = 0.02

Json = dict[str, Any]
T = TypeVar("T")
_RUNNING = pytest.StashKey["Platform"]()


async def until(probe: Callable[[], Awaitable[T]], seconds: float = PATIENCE) -> T:
    """Return the first true answer of `probe`; fail when none comes within `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = await probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:g} s; the last answer was {answer!r}")
        await asyncio.sleep(_PAUSE)


class Platform:
    """One `thingway up`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self.mqtt_port, self.nats_port = (ports.choose_free() for _ in range(3))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ready(self) -> ready.Ready:
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
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it is ready."""
        log = (self.directory.parent / f"{self.directory.name}.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [
                    *(THINGWAY, "up", "--no-simulator", "--data", self.directory),
                    *("--port", str(self.port)),
                    *("--mqtt-port", str(self.mqtt_port), "--nats-port", str(self.nats_port)),
                ],
                cwd=PROJECT_ROOT,
                env=os.environ
                | {"THINGWAY_END_WITH_PARENT": "1", "THINGWAY_OUTGOING_NETWORKS": "127.0.0.0/8"},
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
            time.sleep(_PAUSE)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """End it as Ctrl-C does; return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    async def die(self) -> None:
        """`kill -9` the launcher, and wait until its children have followed it."""
        pids = list(self.ready.pids.values())
        process, self._process = self._process, None
        assert process is not None
        process.kill()
        process.wait()

        async def all_gone() -> bool:
            return not alive(pids)

        await until(all_gone)
        ready.remove(self.directory)

    def command(self, *words: str) -> Any:
        """Run a `thingway` command on this platform; return the JSON that it prints."""
        done = subprocess.run(
            [THINGWAY, *words, "--data", self.directory, "--json"],
            cwd=PROJECT_ROOT,
            capture_output=True,
            check=True,
            timeout=120,
        )
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
        """What `device-ingest` counts: accepted, stored, rejected, waiting."""
        address = f"http://127.0.0.1:{self.state.ports['device-ingest']}/metrics"
        async with aiohttp.ClientSession() as session, session.get(address) as answer:
            lines = (await answer.text()).splitlines()
        found = {}
        for line in lines:
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            if name.startswith("thingway_uplink_"):
                short = name.removeprefix("thingway_uplink_").removesuffix("_total")
                found[short] = int(float(value))
        return found

    @contextlib.asynccontextmanager
    async def admin(self) -> AsyncIterator[NatsClient]:
        """A NATS client that may read everything, `DEAD` too."""
        client = await nats.connect(
            f"nats://127.0.0.1:{self.nats_port}",
            user="admin",
            password=self.state.secrets["nats.admin"],
        )
        try:
            yield client
        finally:
            await client.close()

    def application(self, client_id: str = "", client_secret: str = "") -> "Application":
        """A client of the API; of the first application unless told otherwise."""
        first = self.ready.application
        return Application(self, client_id or first.client_id, client_secret or first.client_secret)

    def console(self, email: str = "", password: str = "", tenant: str = "") -> "Console":
        """A client of the management API; of the first user, a super-admin, unless told."""
        first = self.ready.user
        return Console(self, email or first.email, password or first.password, tenant)


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
    """The platform that all modules of a pytest process share, started by the first in need.

    Its data go with the process, and its logs too, unless a test has failed.
    """
    config = session.config
    found = config.stash.get(_RUNNING, None)
    if found is None:
        root = Path(tempfile.mkdtemp(prefix="thingway-e2e-"))
        found = Platform(root / "data")
        config.add_cleanup(lambda: _clear(root, keep_logs=session.testsfailed > 0))
        found.start()
        config.add_cleanup(found.stop)
        config.stash[_RUNNING] = found
    return found


def _clear(root: Path, *, keep_logs: bool) -> None:
    if keep_logs:
        kept = Path(tempfile.mkdtemp(prefix="thingway-logs-"))
        for log in (*root.glob("*.log"), *root.glob("data/logs/*")):
            log.rename(kept / log.name)
        print(f"the logs of the platform: {kept}", file=sys.__stderr__)
    rmtree(root, ignore_errors=True)


class Application:
    """A third-party application: logs in, and again when it is told 401."""

    def __init__(self, platform: Platform, client_id: str, client_secret: str) -> None:
        self.platform = platform
        self.client_id = client_id
        self.client_secret = client_secret
        self.id = 0
        self.token = ""
        self._session = aiohttp.ClientSession(platform.base_url)

    async def log_in(self) -> None:
        """Get a token."""
        form = {
            "grant_type": "client_credentials",
            "client_id": self.client_id,
            "client_secret": self.client_secret,
        }
        async with self._session.post("/oauth/token", data=form) as answer:
            body = await answer.json()
            assert answer.status == 200, body
        self.token = body["data"]["access_token"]

    async def request(
        self, method: str, path: str, body: Any = None, **query: Any
    ) -> tuple[int, Json]:
        """One call with the token as it is: status and body."""
        status, content, _ = await self._send(method, path, body, query)
        return status, content

    async def data(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """`data` of a call that must succeed."""
        status, content, _ = await self._call(method, path, body, query)
        assert (status, content.get("status")) == (200, "Success"), content
        return content.get("data")

    async def started(self, method: str, path: str, body: Any = None) -> int:
        """The id of the task that a call starts."""
        status, content, headers = await self._call(method, path, body, {})
        assert status == 200, content
        return int(headers["Location"].rpartition("/")[2])

    async def _call(self, method: str, path: str, body: Any, query: Json) -> tuple[int, Json, Any]:
        if not self.token:
            await self.log_in()
        answer = await self._send(method, path, body, query)
        if answer[0] == 401:
            await self.log_in()
            answer = await self._send(method, path, body, query)
        return answer

    async def _send(self, method: str, path: str, body: Any, query: Json) -> tuple[int, Json, Any]:
        headers = {"Authorization": f"Bearer {self.token}"}
        query = {name: str(value) for name, value in query.items()}
        async with self._session.request(
            method, f"{API}{path}", json=body, headers=headers, params=query
        ) as answer:
            return answer.status, await answer.json(), answer.headers

    async def add_device(self, **fields: Any) -> "Device":
        """Add a device of the tests' product and issue its credentials."""
        sn = fields.pop("snDevEUI", f"E2E{uuid4().hex[:13].upper()}")
        added = await self.data("POST", "/devices", {"snDevEUI": sn, "name": sn, **fields})
        device = Device(self, added["deviceId"], added["sn"], "")
        device.key = await device.new_key()
        return device

    async def close(self) -> None:
        """Close its connections."""
        await self._session.close()


class Console:
    """A person at the console: signs in, and again when told 401."""

    def __init__(self, platform: Platform, email: str, password: str, tenant: str = "") -> None:
        self.platform = platform
        self.email = email
        self.password = password
        self.tenant = tenant
        self.token = ""
        self.refresh_token = ""
        self._session = aiohttp.ClientSession(platform.base_url)

    async def sign_in(self) -> None:
        """Get tokens with the password."""
        await self._grant(grant_type="password", username=self.email, password=self.password)

    async def refresh(self) -> None:
        """Get the next tokens."""
        await self._grant(grant_type="refresh_token", refresh_token=self.refresh_token)

    async def _grant(self, **fields: str) -> None:
        client = self.platform.ready.console_client
        form = {**fields, "client_id": client.client_id, "client_secret": client.client_secret}
        headers = {"TENANT_ID": self.tenant} if self.tenant else {}
        async with self._session.post("/oauth2/token", data=form, headers=headers) as answer:
            body = await answer.json()
            assert answer.status == 200, body
        self.token = body["data"]["access_token"]
        self.refresh_token = body["data"]["refresh_token"]

    async def request(
        self, method: str, path: str, body: Any = None, **query: Any
    ) -> tuple[int, Json]:
        """One call with the token as it is: status and body."""
        headers = {"Authorization": f"Bearer {self.token}"}
        params = {name: str(value) for name, value in query.items()}
        async with self._session.request(
            method, path, json=body, headers=headers, params=params
        ) as answer:
            return answer.status, await answer.json()

    async def data(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """`data` of a call that must succeed; signs in before it when that is needed."""
        if not self.token:
            await self.sign_in()
        status, content = await self.request(method, path, body, **query)
        if status == 401:
            await self.sign_in()
            status, content = await self.request(method, path, body, **query)
        assert (status, content.get("status")) == (200, "Success"), content
        return content.get("data")

    async def add_user(self, email: str = "") -> "Console":
        """Add a user without roles to this one's tenant, and be it."""
        made = Console(
            self.platform, email or f"{uuid4().hex}@example.com", self.password, self.tenant
        )
        fields = {"email": made.email, "nickname": "Somebody", "password": made.password}
        await self.data("POST", "/user/members", fields)
        return made

    async def id(self) -> int:
        """The user's id."""
        return int((await self.data("GET", "/user"))["user_id"])

    async def close(self) -> None:
        """Close its connections."""
        await self._session.close()


@dataclass
class Device:
    """A device: what its application sees of it, and its ways to speak."""

    application: Application
    id: int
    sn: str
    key: str

    async def new_key(self) -> str:
        """Issue credentials."""
        issued = await self.application.data("POST", f"/devices/{self.id}/credentials")
        return str(issued["key"])

    async def record(self) -> Json:
        """The device record."""
        return dict(await self.application.data("GET", f"/devices/{self.id}"))

    async def connect_status(self) -> str:
        return str((await self.record())["connectStatus"])

    async def becomes(self, status: str, seconds: float = PATIENCE) -> None:
        """Wait for a connection state."""

        async def is_so() -> bool:
            return await self.connect_status() == status

        await until(is_so, seconds)

    async def history(self) -> list[Json]:
        """All of its history, oldest first."""
        records: list[Json] = []
        query: Json = {"startTime": 0, "pageSize": 1000, "order": "asc"}
        while True:
            page = await self.application.data(
                "GET", f"/devices/{self.id}/properties/history", **query
            )
            records += page["list"]
            if "nextPageKey" not in page:
                return records
            query["pageKey"] = page["nextPageKey"]

    async def stored(self, properties: Json, seconds: float = PATIENCE) -> Json:
        """Wait until a report of exactly these properties is in history."""

        async def found() -> Json | None:
            records = await self.history()
            return next((one for one in records if one["properties"] == properties), None)

        return await until(found, seconds) or {}

    async def settings(self) -> Json:
        """The latest values of its settings."""
        config = await self.application.data("GET", f"/devices/{self.id}/config")
        return dict(config.get("properties") or {})

    async def task(self, task_id: int) -> Json:
        """The state of a task."""
        return dict(await self.application.data("GET", f"/tasks/{task_id}"))

    async def ended(self, task_id: int) -> Json:
        """Wait until a task is over."""

        async def over() -> Json | None:
            task = await self.task(task_id)
            return task if task["status"] not in {"PENDING", "SENT"} else None

        return await until(over) or {}

    def mqtt(self, *, identifier: str = "", clean: bool = True, key: str = "") -> "MqttDevice":
        """An MQTT connection, not yet open."""
        return MqttDevice(self, identifier or uuid4().hex, clean=clean, key=key or self.key)

    @contextlib.asynccontextmanager
    async def nats(self, *, reconnect: bool = True) -> AsyncIterator[NatsClient]:
        """A plain NATS connection."""
        client = await nats.connect(
            f"nats://127.0.0.1:{self.application.platform.nats_port}",
            user=self.sn,
            password=self.key,
            inbox_prefix=f"_INBOX.sn.{self.sn}".encode(),
            allow_reconnect=reconnect,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,
            error_cb=_ignore,
        )
        try:
            yield client
        finally:
            await client.close()

    async def http(
        self, method: str, what: str, body: Any = None, *, key: str = "", **query: Any
    ) -> tuple[int, Json]:
        """One request to `/ingest/v1/{sn}/{what}`; a body of bytes is sent as it is."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        platform = self.application.platform
        headers = {
            "Authorization": aiohttp.encode_basic_auth(self.sn, key or self.key),
            "Content-Type": "application/json",
        }
        async with (
            aiohttp.ClientSession(platform.base_url, headers=headers) as session,
            session.request(
                method,
                what if what.startswith("/") else f"/ingest/v1/{self.sn}/{what}",
                data=None if body is None else content,
                params={name: str(value) for name, value in query.items()},
            ) as answer,
        ):
            return answer.status, await answer.json()


async def _ignore(_: Exception) -> None:
    """Errors of a connection that a test breaks are no news."""


class MqttDevice:
    """A device's MQTT connection; `async with` opens it and subscribes to commands."""

    def __init__(self, device: Device, identifier: str, *, clean: bool, key: str) -> None:
        self.device = device
        self.client = aiomqtt.Client(
            "127.0.0.1",
            device.application.platform.mqtt_port,
            username=device.sn,
            password=key,
            identifier=identifier,
            clean_session=clean,
            timeout=5,
        )

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        await self.client.subscribe(f"thing/{self.device.sn}/down/#", qos=1)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(aiomqtt.MqttError):
            await self.client.__aexit__(kind, error, trace)

    async def send(self, channel: str, body: Any, qos: int = 1) -> None:
        """Publish; with QoS 1 return when it is acknowledged. Bytes are sent as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body)
        await self.client.publish(f"thing/{self.device.sn}/up/{channel}", content, qos=qos)

    async def report(self, properties: Json, ts: int | None = None, qos: int = 1) -> None:
        """Report properties."""
        body: Json = {"properties": properties}
        await self.send("report", body if ts is None else body | {"ts": ts}, qos)

    async def command(self, seconds: float = PATIENCE) -> Json:
        """The next command."""
        async with asyncio.timeout(seconds):
            message = await anext(self.client.messages)
        assert str(message.topic) == f"thing/{self.device.sn}/down/command"
        return dict(json.loads(message.payload))

    async def answer(self, command: Json, status: str = "SUCCESS", **fields: Any) -> None:
        """Answer a command."""
        await self.send("reply", {"commandId": command["commandId"], "status": status, **fields})

    async def closed(self, seconds: float = PATIENCE) -> None:
        """Wait until the server has closed the connection."""
        with contextlib.suppress(aiomqtt.MqttError):
            async with asyncio.timeout(seconds):
                async for _ in self.client.messages:
                    pass


@dataclass(frozen=True)
class Event:
    """A message heard on the bus."""

    subject: str
    body: Json


class Listener:
    """Hears what is said on NATS from now on, and remembers it."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        self._more = asyncio.Event()

    async def take(self, message: Msg) -> None:
        """Remember a message."""
        self.heard.append(Event(message.subject, json.loads(message.data)))
        self._more.set()

    async def wait(self, subject: str, matches: Callable[[Json], bool] = lambda _: True) -> Json:
        """The first message on `subject` that matches, heard already or to come."""
        seen = 0
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    self._more.clear()
                    for event in self.heard[seen:]:
                        if event.subject == subject and matches(event.body):
                            return event.body
                    seen = len(self.heard)
                    await self._more.wait()
        except TimeoutError:
            about = [event for event in self.heard if event.subject == subject]
            pytest.fail(f"nothing fitting on {subject}; heard there: {about}")


@contextlib.asynccontextmanager
async def listening(platform: Platform, application: Application) -> AsyncIterator[Listener]:
    """Hear the events of the tenant as an application does."""
    address = urlsplit(platform.ready.nats_url)
    client = await nats.connect(
        f"nats://{address.hostname}:{address.port}",
        user=application.client_id,
        password=application.client_secret,
        inbox_prefix=f"_INBOX.app.{application.client_id}".encode(),
    )
    listener = Listener()
    try:
        await client.subscribe("event.default.>", cb=listener.take)
        await client.flush()
        yield listener
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def hearing_dead(platform: Platform) -> AsyncIterator[Listener]:
    """Hear what goes to `DEAD`."""
    listener = Listener()
    async with platform.admin() as client:
        await client.subscribe("dead.>", cb=listener.take)
        await client.flush()
        yield listener


def alive(pids: Iterable[int]) -> list[int]:
    """Those of `pids` that are processes (zombies are not)."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z":
                found.append(pid)
    return found
