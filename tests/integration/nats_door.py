"""A real nats-server with the rendered configuration, a callout as small as can be, and a relay."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiomqtt
import nats
import nats.errors
import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.js.api import RetentionPolicy, StreamConfig

from deploy.platform.nats import NatsConfig, render_nats_config
from deploy.platform.nats_grants import RELAY_USER, USERS
from libs.common.bus.nkeys import KeyKind, KeyPair
from services.auth.callout import jwt
from services.auth.callout.permissions import application_permissions, device_permissions
from tests.outside import relaying

WAIT = 5.0
KEYS = {"D1": "key-1", "D2": "key-2"}
APPLICATIONS = {"app1": "t1", "app2": "t2"}
STREAMS = (
    StreamConfig(
        name="$MQTT_msgs",
        subjects=["$MQTT.msgs.thing.*.down", "$MQTT.msgs.thing.*.down.>"],
        retention=RetentionPolicy.INTEREST,
    ),
    StreamConfig(
        name="UPLINK",
        subjects=["thing.*.up.>", "$MQTT.msgs.thing.*.up.>"],
        retention=RetentionPolicy.WORK_QUEUE,
    ),
    StreamConfig(name="EVENTS", subjects=["event.>"], allow_atomic=True),
)


class Server:
    """A running nats-server and how to reach it."""

    def __init__(self, port: int, mqtt_port: int) -> None:
        self.url = f"nats://127.0.0.1:{port}"
        self.mqtt_port = mqtt_port

    def mqtt(self, user: str, key: str, **options) -> aiomqtt.Client:
        return aiomqtt.Client(
            "127.0.0.1", self.mqtt_port, username=user, password=key, timeout=WAIT, **options
        )

    @contextlib.asynccontextmanager
    async def nats(self, user: str, password: str, inbox: str = "") -> AsyncIterator[Client]:
        """Connect; `client.refusals` collects what the server did not permit, and why it closed."""
        refusals: asyncio.Queue[str] = asyncio.Queue()

        async def refused(error: Exception | None) -> None:
            refusals.put_nowait(str(error))

        async def closed() -> None:
            await refused(client.last_error)

        client = await nats.connect(
            self.url,
            user=user,
            password=password,
            allow_reconnect=False,
            inbox_prefix=inbox or f"_INBOX.{user}",
            error_cb=refused,
            closed_cb=closed,
        )
        client.refusals = refusals
        try:
            yield client
        finally:
            await client.close()

    def service(self, user: str) -> contextlib.AbstractAsyncContextManager[Client]:
        return self.nats(user, f"secret-{user}")

    def device(self, sn: str) -> contextlib.AbstractAsyncContextManager[Client]:
        return self.nats(sn, KEYS[sn], f"_INBOX.sn.{sn}")

    def application(self, name: str) -> contextlib.AbstractAsyncContextManager[Client]:
        return self.nats(name, "secret", f"_INBOX.app.{name}")


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def launch(file: Path) -> subprocess.Popen[bytes]:
    found = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    with file.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(
            [found or "nats-server", "-c", file], stdout=log, stderr=subprocess.STDOUT
        )


async def reachable(port: int, process: subprocess.Popen[bytes]) -> None:
    async with asyncio.timeout(WAIT):
        while process.poll() is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return
    pytest.fail("nats-server did not start")


async def answer_callouts(client: Client, issuer: KeyPair) -> None:
    """Decide as the auth service does, with two devices and two applications."""

    async def decide(message) -> None:
        request = jwt.decode_request(message.data)
        name, secret = request.connect_opts.user, request.connect_opts.password
        if name in KEYS and KEYS[name] == secret:
            permissions = device_permissions(name, mqtt=request.client_info.type == "mqtt")
        elif name in APPLICATIONS and secret == "secret":
            permissions = application_permissions(name, APPLICATIONS[name])
        else:
            await message.respond(jwt.build_rejection(request, "unknown", issuer))
            return
        user = jwt.build_user_jwt(request, name=name, permissions=permissions, key=issuer)
        await message.respond(jwt.build_acceptance(request, user, issuer))

    await client.subscribe("$SYS.REQ.USER.AUTH", cb=decide)
    await client.flush()


@contextlib.asynccontextmanager
async def nats_door(folder: Path, partitions: int = 1) -> AsyncIterator[Server]:
    """Start it with its data in `folder`, with the streams that devices and applications use."""
    issuer = KeyPair.create(KeyKind.ACCOUNT)
    port, mqtt_port = free_ports(2)
    file = folder / "nats.conf"
    file.write_text(
        render_nats_config(
            NatsConfig(
                passwords={user: f"secret-{user}" for user in USERS},
                callout_issuer=issuer.public_key,
                store_dir=folder,
                port=port,
                mqtt_port=mqtt_port,
                partitions=partitions,
            )
        )
    )
    process = launch(file)
    try:
        await reachable(port, process)
        await reachable(mqtt_port, process)
        running = Server(port, mqtt_port)
        async with running.service("admin") as admin, running.service("auth") as auth:
            for stream in STREAMS:
                await admin.jetstream().add_stream(stream)
            await answer_callouts(auth, issuer)
            async with relaying(running.url, f"secret-{RELAY_USER}"):
                yield running
    finally:
        process.terminate()
        process.wait(WAIT)
