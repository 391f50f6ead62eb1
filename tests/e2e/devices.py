"""A device: over MQTT, NATS and HTTP, and as its application sees it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import aiohttp
import aiomqtt
from nats.aio.client import Client as NatsClient

from libs.common.bus import SecureClient
from tests.e2e.waiting import PATIENCE, until

if TYPE_CHECKING:
    from tests.e2e.callers import Application

Json = dict[str, Any]


@dataclass
class Device:
    """A device: its application's view, and its connections."""

    application: "Application"
    id: int
    sn: str
    key: str

    async def new_key(self) -> str:
        """Issue credentials."""
        issued = await self.application.data("POST", f"/devices/{self.id}/credentials")
        return str(issued["key"])

    async def record(self) -> Json:
        """Return the device record."""
        return dict(await self.application.data("GET", f"/devices/{self.id}"))

    async def connect_status(self) -> str:
        return str((await self.record())["connectStatus"])

    async def becomes(self, status: str, seconds: float = PATIENCE) -> None:
        """Wait for a connection state."""

        async def is_so() -> bool:
            return await self.connect_status() == status

        await until(is_so, seconds)

    async def history(self) -> list[Json]:
        """Return the whole history, oldest first."""
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
            return next((record for record in records if record["properties"] == properties), None)

        return await until(found, seconds) or {}

    async def settings(self) -> Json:
        """Return the latest values of the settings."""
        config = await self.application.data("GET", f"/devices/{self.id}/config")
        return dict(config.get("properties") or {})

    async def task(self, task_id: int) -> Json:
        """Return the state of a task."""
        return dict(await self.application.data("GET", f"/tasks/{task_id}"))

    async def ended(self, task_id: int) -> Json:
        """Wait until a task is over."""

        async def over() -> Json | None:
            task = await self.task(task_id)
            return task if task["status"] not in {"PENDING", "SENT"} else None

        return await until(over) or {}

    def mqtt(self, *, identifier: str = "", clean: bool = True, key: str = "") -> "MqttDevice":
        """Return an MQTT connection that is not open yet."""
        return MqttDevice(self, identifier or uuid4().hex, clean=clean, key=key or self.key)

    @contextlib.asynccontextmanager
    async def nats(self, *, reconnect: bool = True) -> AsyncIterator[NatsClient]:
        """Open a plain NATS connection."""
        platform = self.application.platform
        client = SecureClient()
        await client.connect(
            platform.nats_door(),
            tls=platform.trust,
            user=self.sn,
            password=self.key,
            inbox_prefix=f"_INBOX.sn.{self.sn}".encode(),
            allow_reconnect=reconnect,
            max_reconnect_attempts=-1 if reconnect else 1,  # -1: also of the first connection
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
        """Send a request to `/ingest/v1/{sn}/{what}`; send a body of bytes unchanged."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        platform = self.application.platform
        headers = {
            "Authorization": aiohttp.encode_basic_auth(self.sn, key or self.key),
            "Content-Type": "application/json",
        }
        async with (
            platform.session(headers=headers) as session,
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
            *device.application.platform.mqtt_door(),
            username=device.sn,
            password=key,
            identifier=identifier,
            clean_session=clean,
            timeout=5,
            tls_context=device.application.platform.trust,
        )

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.client)
            except aiomqtt.MqttError:
                self.client._client.disconnect()  # aiomqtt keeps a connection whose wait timed out
                raise
            await self.client.subscribe(f"thing/{self.device.sn}/down/#", qos=1)
            stack.pop_all()
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
        """Return the next command."""
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
